# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How far each rank came: sequence numbers of collectives by rank, for dumps of jobs that hang."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.view.picture.panel import LABEL, LEFT, TITLE, right, swatches, title
from dtscope_jupyter.view.picture.scales import whole_ticks
from dtscope_jupyter.view.scene.progress import ABSENT, DONE, UNKNOWN, WAITING

if TYPE_CHECKING:
    import numpy.typing as npt

    from dtscope_jupyter.view.picture.canvas import Canvas
    from dtscope_jupyter.view.scene.progress import Progress

_COLORS = {DONE: "compute", WAITING: "exposed", ABSENT: "critical", UNKNOWN: "idle"}
_LEGEND = (("completed", "compute"), ("waiting", "exposed"), ("not called", "critical"), ("not known", "idle"))
_MOST = 64


@dataclass(frozen=True, slots=True)
class StepsTaken:
    """The last collectives of the process group in which ranks wait."""

    progress: Progress
    blamed: list[int]

    @property
    def row(self) -> int:
        """Height of a row."""
        count = min(len(self.progress.ranks), _MOST)
        return 22 if count <= 8 else 15 if count <= 16 else 6  # noqa: PLR2004

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + self.row * min(len(self.progress.ranks), _MOST) + 24

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        shown = self.progress
        name = "Where each rank is"
        about = f"process group {shown.process_group} {shown.description}".rstrip() + ", by sequence number"
        title(canvas, top, name, about, until=swatches(canvas, top, _LEGEND) - 12)
        ranks, states = self._telling()
        table = np.zeros((4, 3), np.uint8)
        for state, color in _COLORS.items():
            table[state] = canvas.palette.rgb(color)
        top += TITLE
        canvas.cells(LEFT, top, right(canvas), top + self.row * len(ranks), table[states])
        self._grid(canvas, top, *states.shape)
        for i, rank in enumerate(ranks):
            if self.row >= 15 or not i % 3:  # noqa: PLR2004
                bold = rank in self.blamed
                y = top + self.row * (i + 0.5) + 4.5
                canvas.text(LABEL, y, f"rank {rank}", color="ink" if bold else "quiet", bold=bold, align="right")
        self._axis(canvas, top + self.row * len(ranks) + 16)

    def _telling(self) -> tuple[list[int], npt.NDArray[np.int8]]:
        shown = self.progress
        if len(shown.ranks) <= _MOST:
            return shown.ranks, shown.states
        behind = np.argsort((shown.states == DONE).sum(axis=1) + (shown.states == WAITING).sum(axis=1), kind="stable")
        keep = np.sort(behind[:_MOST])
        return [shown.ranks[i] for i in keep], shown.states[keep]

    def _grid(self, canvas: Canvas, top: float, rows: int, columns: int) -> None:
        width = (right(canvas) - LEFT) / columns
        for j in range(1, columns):
            canvas.rectangle(LEFT + width * j - 0.5, top, LEFT + width * j + 0.5, top + self.row * rows, "paper")
        for i in range(1, rows):
            canvas.rectangle(LEFT, top + self.row * i - 0.5, right(canvas), top + self.row * i + 0.5, "paper")

    def _axis(self, canvas: Canvas, y: float) -> None:
        seqs = self.progress.seqs
        width = (right(canvas) - LEFT) / len(seqs)
        for j in whole_ticks(0, len(seqs) - 1, 12):
            words = f"{seqs[j]}"
            canvas.text(LEFT + width * (j + 0.5), y, words, size=12, color="quiet", align="middle")
