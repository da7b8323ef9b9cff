# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a late rank did while the others waited, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtscope_jupyter.view.picture.panel import TITLE, right, title
from dtscope_jupyter.view.text import duration, several

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dtscope_jupyter.view.picture.canvas import Canvas

_ROW = 21
_WORDS = 128
_NUMBER = 62
_MOST = 6


def _words(kind: str) -> str:
    return "compute" if kind == "own" else kind.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Instead:
    """`excess_ms`: kind of work and how much more of it than on the other ranks, in ms a step; negative ones count for nothing."""

    ranks: Sequence[int]
    excess_ms: Mapping[str, float]
    left: float

    @property
    def _largest(self) -> list[tuple[str, float]]:
        return sorted(((k, max(v, 0.0)) for k, v in self.excess_ms.items()), key=lambda item: -item[1])[:_MOST]

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + _ROW * len(self._largest) + 6

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        title(canvas, top, f"What {several(self.ranks, 3)} did instead", "more than the others, a step", left=self.left)
        largest = self._largest
        begin, room = self.left + _WORDS, right(canvas) - self.left - _WORDS - _NUMBER
        y = top + TITLE + 13
        least = max(0.01 * largest[0][1], 1e-9)
        for name, value in largest:
            color = "ink" if value >= least else "quiet"
            canvas.text(self.left, y, canvas.fit(_words(name), _WORDS - 10), color=color)
            if value >= least:
                canvas.rectangle(begin, y - 10, begin + room * value / largest[0][1], y + 2, "compute")
            canvas.text(right(canvas), y, duration(value) if value >= least else "0", align="right", color=color)
            y += _ROW
