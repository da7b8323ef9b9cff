# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The mean step of the telling ranks as a table of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtscope_jupyter.view.picture.panel import MARGIN, TITLE, title
from dtscope_jupyter.view.text import UNKNOWN, column

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.view.picture.canvas import Canvas

HEADS = {
    "step_ms": "step",
    "compute_ms": "compute",
    "comm_ms": "comm",
    "exposed_ms": "exposed",
    "overlap_ratio": "overlap",
    "wait_ms": "wait",
    "times_last": "times last",
}
_ROW = 21


@dataclass(frozen=True, slots=True)
class Ranks:
    """`numbers` by rank as `scene.numbers` gives them; rows of `blamed` are in bold."""

    numbers: pd.DataFrame
    hidden: int
    blamed: list[int]
    width: float
    caption: str

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + _ROW * (len(self.numbers) + 1 + bool(self.hidden)) + 6

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        until = MARGIN + self.width
        title(canvas, top, "By rank", self.caption, until=until)
        places = [MARGIN + 46 + (self.width - 46) * (i + 1) / len(HEADS) for i in range(len(HEADS))]
        y = top + TITLE + 13
        for head, x in zip(HEADS.values(), places, strict=True):
            canvas.text(x, y, head, size=12, color="quiet", align="right")
        canvas.rectangle(MARGIN, y + 6, until, y + 6.5, "rule")
        cells = [self._column(name) for name in HEADS]
        for i, rank in enumerate(self.numbers.index):
            y += _ROW
            bold = int(rank) in self.blamed
            canvas.text(MARGIN, y, f"rank {rank}", bold=bold)
            for values, x in zip(cells, places, strict=True):
                canvas.text(x, y, values[i], align="right", bold=bold, color="quiet" if values[i] == UNKNOWN else "ink")
        if self.hidden:
            canvas.text(MARGIN, y + _ROW, f"and {self.hidden} more", size=12, color="quiet")

    def _column(self, name: str) -> list[str]:
        values = self.numbers[name]
        if name == "overlap_ratio":
            return [f"{v:.2f}" if v == v else UNKNOWN for v in values]  # noqa: PLR0124
        if name == "times_last":
            return [f"{v:.0f}" if v == v else UNKNOWN for v in values]  # noqa: PLR0124
        return column(values)
