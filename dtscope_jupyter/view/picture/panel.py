# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What every panel shares: its protocol, the columns of the sheet, titles and legends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.view.picture.canvas import Canvas

MARGIN = 18
LABEL = 92
"""Where labels of rows end and plots begin 8 pixels later."""
LEFT = LABEL + 8
ASIDE = 62
"""Room at the right of plots for a number a row."""
GAP = 24
TITLE = 26


class Panel(Protocol):
    """A part of the sheet over its whole width."""

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        ...

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        ...


def right(canvas: Canvas) -> float:
    """Where plots end."""
    return canvas.width - MARGIN


def plot_right(canvas: Canvas) -> float:
    """Where plots end that have a number beside each row."""
    return right(canvas) - ASIDE


def title(canvas: Canvas, top: float, name: str, about: str, *, left: float = MARGIN, until: float | None = None) -> None:
    """The panel's name in bold, then quietly the quantity and its unit, cut before `until`."""
    used = canvas.text(left, top + 13, name, size=14, bold=True)
    room = (right(canvas) if until is None else until) - left - used - 10
    canvas.text(left + used + 10, top + 13, canvas.fit(about, room, size=12), size=12, color="quiet")


def swatches(canvas: Canvas, top: float, entries: Sequence[tuple[str, str]]) -> float:
    """A legend, flush right on the title's line: (words, colour); returns where it begins."""
    x = right(canvas)
    for words, color in reversed(entries):
        x -= canvas.measure(words, size=12)
        canvas.text(x, top + 13, words, size=12, color="quiet")
        x -= 18
        canvas.rectangle(x, top + 3, x + 12, top + 14, color, radius=2)
        x -= 14
    return x + 14


def message(canvas: Canvas, top: float, words: str) -> None:
    """What stands in the place of a panel that has nothing to show."""
    canvas.text(MARGIN, top + TITLE + 14, canvas.fit(words, right(canvas) - MARGIN, size=13), size=13, color="quiet")
