# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The head of the sheet, and the sentence that comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtscope_jupyter.view.picture.panel import MARGIN, right

if TYPE_CHECKING:
    from dtscope_jupyter.view.picture.canvas import Canvas


@dataclass(frozen=True, slots=True)
class Header:
    """Name of the run, what ran, and at the right what watching it cost."""

    title: str
    subtitle: str
    aside: str

    height: int = 28

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        aside = canvas.text(right(canvas), top + 18, self.aside, size=12, color="quiet", align="right") if self.aside else 0
        room = right(canvas) - MARGIN - aside - 24
        name = canvas.fit(self.title, room * 0.6, size=17)
        used = canvas.text(MARGIN, top + 18, name, size=17, bold=True)
        canvas.text(MARGIN + used + 12, top + 18, canvas.fit(self.subtitle, room - used, size=13), size=13, color="quiet")


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence, what follows from it, and a bar whose colour says how grave it is."""

    sentence: list[str]
    detail: list[str]
    color: str
    calm: bool

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return 20 + 20 * len(self.sentence) + 17 * len(self.detail)

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        ground = "panel" if self.calm else "finding"
        canvas.rectangle(MARGIN, top, right(canvas), top + self.height, ground)
        canvas.rectangle(MARGIN, top, MARGIN + 5, top + self.height, self.color)
        y = top + 24
        for line in self.sentence:
            canvas.text(MARGIN + 20, y, line, size=15.5, bold=True)
            y += 20
        for line in self.detail:
            canvas.text(MARGIN + 20, y, line, size=12.5, color="quiet")
            y += 17
