# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The gradient strip: norms as group of parameters x rank, on a logarithmic scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.view.palette import readable_on
from dtscope_jupyter.view.picture.panel import LABEL, LEFT, MARGIN, TITLE, right, title
from dtscope_jupyter.view.picture.scales import Bytes, shades, whole_ticks
from dtscope_jupyter.view.text import significant

if TYPE_CHECKING:
    from dtscope_jupyter.view.picture.canvas import Canvas
    from dtscope_jupyter.view.scene.gradients import Gradients
    from dtscope_jupyter.view.scene.matrix import Reals

_ROW = 20
_WRITTEN = 44
_COLUMNS = 200
_DECADES = 1.0


@dataclass(frozen=True, slots=True)
class Norms:
    """The gradients of the last step that has them; `width` of the sheet where not all of it: the notes beside tell their order."""

    gradients: Gradients
    width: float | None = None

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + _ROW * len(self.gradients.groups) + 22

    def _end(self, canvas: Canvas) -> float:
        return right(canvas) if self.width is None else MARGIN + self.width

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        shown = self.gradients
        title(canvas, top, "Gradients", self._about(), until=self._end(canvas))
        every = -(-shown.norms.shape[1] // _COLUMNS)
        norms = np.where(shown.seen, shown.norms, np.nan)[:, ::every]
        colors = shades(_position(norms), 1.0, canvas.palette)
        colors[(shown.seen & ~np.isfinite(shown.norms))[:, ::every]] = canvas.palette.rgb("critical")
        bottom = top + TITLE + _ROW * len(shown.groups)
        canvas.cells(LEFT, top + TITLE, self._end(canvas), bottom, colors)
        for i in range(1, len(shown.groups)):
            canvas.rectangle(LEFT, top + TITLE + _ROW * i - 1, self._end(canvas), top + TITLE + _ROW * i + 1, "paper")
        self._cells(canvas, top + TITLE, norms, colors)
        self._axis(canvas, bottom + 15, every)
        for i, group in enumerate(shown.groups):
            name = canvas.fit_name(group, LABEL - MARGIN, size=12)
            canvas.text(LABEL, top + TITLE + _ROW * i + 14.5, name, size=12, color="quiet", align="right")

    def _about(self) -> str:
        shown = self.gradients
        words = f"L2 norm {shown.which} averaging over ranks, step {shown.step}, log scale"
        return words if self.width is not None or not shown.order else f"{words} · {shown.order}"

    def _cells(self, canvas: Canvas, top: float, norms: Reals, colors: Bytes) -> None:
        columns = norms.shape[1]
        width = (self._end(canvas) - LEFT) / columns
        bottom = top + _ROW * len(norms)
        for j in range(columns if width >= 5 else 0):  # noqa: PLR2004
            if j:
                canvas.rectangle(LEFT + width * j - 0.5, top, LEFT + width * j + 0.5, bottom, "paper")
            if width < _WRITTEN:
                continue
            for i, value in enumerate(norms[:, j]):
                ink = readable_on(tuple(int(c) for c in colors[i, j]))  # type: ignore[arg-type]
                words = significant(float(value)) if np.isfinite(value) else "not finite" if self.gradients.seen[i, j] else ""
                canvas.text(LEFT + width * (j + 0.5), top + _ROW * i + 14.5, words, size=12, color=ink, align="middle")


    def _axis(self, canvas: Canvas, y: float, every: int) -> None:
        """Ranks below their columns: all where there is room, else round ones."""
        ranks = self.gradients.ranks[::every]
        width = (self._end(canvas) - LEFT) / len(ranks)
        places = range(len(ranks)) if width >= _WRITTEN else whole_ticks(0, len(ranks) - 1, 11)
        for i, j in enumerate(places):
            words = f"rank {ranks[j]}" if width >= _WRITTEN or not i else f"{ranks[j]}"
            x = max(LEFT + width * (j + 0.5), LEFT + canvas.measure(words, size=12) / 2)
            canvas.text(x, y, words, size=12, color="quiet", align="middle")


def _position(norms: Reals) -> Reals:
    """Places on the ramp between the smallest and the largest norm, at least a decade apart, on a log scale."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(norms > 0, np.log10(norms), np.nan)
    known = logs[np.isfinite(logs)]
    if not len(known):
        return np.where(np.isnan(norms), np.nan, 0.0)
    low = float(known.min())
    span = max(float(known.max()) - low, _DECADES)
    place = 0.1 + 0.8 * (logs - low) / span
    return np.where(np.isposinf(norms), 1.0, np.where(norms == 0, 0.0, place))
