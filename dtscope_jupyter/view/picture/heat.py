# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The overlap map: exposed communication as rank x step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.view.palette import readable_on
from dtscope_jupyter.view.picture.panel import LABEL, LEFT, TITLE, message, plot_right, right, title
from dtscope_jupyter.view.picture.scales import Bytes, shades, whole_ticks
from dtscope_jupyter.view.scene.matrix import strong_end
from dtscope_jupyter.view.text import column, count, significant

if TYPE_CHECKING:
    from dtscope_jupyter.view.picture.canvas import Canvas
    from dtscope_jupyter.view.scene.matrix import Matrix, Pooled, Reals

_ROOMY, _TIGHT = 8, 16
_WRITTEN = 46
_AXIS = 24
_STRIP, _APART = 18, 4
_NUMBERED = 11
_FEW = 8


@dataclass(frozen=True, slots=True)
class Heat:
    """`matrix` in ms, `pooled` what is drawn of it, `talked` all communication in ms; `marked` is outlined.

    `step_ms` sets the scale, so that a healthy map stays pale; a finding begins with the step `since`. Above the columns and beside the
    rows stand their means.
    """

    matrix: Matrix
    pooled: Pooled
    step_ms: float
    talked: Reals
    marked: int | None
    blamed: list[int]
    since: int | None = None

    @property
    def row(self) -> float:
        """Height of a row."""
        rows = self.pooled.values.shape[0]
        return 22 if rows <= _ROOMY else 15 if rows <= _TIGHT else max(2.0, min(10.0, 300 / rows))

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + (22 if self._nothing else self._strip + round(self.row * self.pooled.values.shape[0]) + _AXIS)

    @property
    def _strip(self) -> int:
        """Height of the means of the steps; none where the cells themselves are few."""
        return _STRIP + _APART if len(self.matrix.steps) > _FEW else 0

    @property
    def _nothing(self) -> str:
        if not self.matrix.ranks:
            return "No step with times was recorded, so there is no map."
        if np.nansum(self.talked) > 0 or self.matrix.estimated.any():
            return ""
        return "No communication with times was recorded, so nothing could be exposed."

    @property
    def top_ms(self) -> float:
        """The dear end of the scale."""
        return strong_end(self.matrix.values, self.step_ms)

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        if self._nothing:
            title(canvas, top, "Exposed communication", "ms a step, rank × step")
            message(canvas, top, self._nothing)
            return
        pooled = self.pooled
        begin = self._legend(canvas, top)
        title(canvas, top, "Exposed communication", self._about(pooled), until=begin)
        colors = shades(pooled.values, self.top_ms, canvas.palette)
        top += TITLE + self._strip
        self._paint(canvas, top, colors)
        self._write(canvas, top, pooled, colors)
        self._labels(canvas, top, pooled)
        self._means(canvas, top, pooled)
        self._since(canvas, top, pooled)
        self._mark(canvas, top, pooled)

    def _about(self, pooled: Pooled) -> str:
        words = "ms a step, rank × step"
        if pooled.down > 1 or pooled.across > 1:
            words += f" · each cell the largest of {count(pooled.down, 'rank')} × {count(pooled.across, 'step')}"
        if self.matrix.exact.all():
            return words + " · exact (profiled)"
        if self.matrix.estimated.any():
            return words + (" · dot: all collectives timed, else estimated" if self.matrix.timed.any() else " · estimated")
        return words + (" · dot: exact (profiled)" if self.matrix.exact.any() else "")

    def _legend(self, canvas: Canvas, top: float) -> float:
        beyond = "+" if np.nanmax(self.matrix.values, initial=0.0) > self.top_ms else ""
        words = f"{self.top_ms:g}{beyond} ms"
        x = right(canvas) - canvas.text(right(canvas), top + 13, words, size=12, color="quiet", align="right") - 8
        ramp = shades(np.linspace(0, 1, 24)[None, :], 1.0, canvas.palette)
        canvas.cells(x - 120, top + 3, x, top + 14, ramp)
        canvas.text(x - 128, top + 13, "0", size=12, color="quiet", align="right")
        return x - 150

    def _edges(self, canvas: Canvas, pooled: Pooled) -> list[float]:
        width = (plot_right(canvas) - LEFT) / pooled.values.shape[1]
        return [LEFT + width * i for i in range(pooled.values.shape[1] + 1)]

    def _paint(self, canvas: Canvas, top: float, colors: Bytes) -> None:
        rows, columns = colors.shape[:2]
        canvas.cells(LEFT, top, plot_right(canvas), top + self.row * rows, colors)
        if self.row >= 15:  # noqa: PLR2004
            for i in range(1, rows):
                canvas.rectangle(LEFT, top + self.row * i - 1, plot_right(canvas), top + self.row * i + 1, "paper")
        width = (plot_right(canvas) - LEFT) / columns
        if width >= 5:  # noqa: PLR2004
            for i in range(1, columns):
                canvas.rectangle(LEFT + width * i - 0.5, top, LEFT + width * i + 0.5, top + self.row * rows, "paper")

    def _write(self, canvas: Canvas, top: float, pooled: Pooled, colors: Bytes) -> None:
        edges = self._edges(canvas, pooled)
        written = edges[1] - edges[0] >= _WRITTEN and self.row >= 15  # noqa: PLR2004
        dotted = not self.matrix.best.all() and self.row >= 6 and edges[1] - edges[0] >= 4  # noqa: PLR2004
        for (i, j), value in np.ndenumerate(pooled.values):
            x, y = (edges[j] + edges[j + 1]) / 2, top + self.row * (i + 0.5)
            ink = readable_on(tuple(int(c) for c in colors[i, j]))  # type: ignore[arg-type]
            if written:
                canvas.text(x, y + 4.5, significant(float(value)), size=12, color=ink, align="middle")
            if dotted and pooled.best[i, j]:
                canvas.dot(edges[j] + 8 if written else x, y, 1.2, ink)

    def _means(self, canvas: Canvas, top: float, pooled: Pooled) -> None:
        """A bar above each column and a number beside each row, where rows are high enough."""
        edges = self._edges(canvas, pooled)
        if self._strip:
            steps = _mean(self.matrix.values, 0, pooled.across)
            colors = shades(steps[None], self.top_ms, canvas.palette)[0]
            for j, value in enumerate(steps):
                high = _STRIP * min(float(value) / self.top_ms, 1.0) if np.isfinite(value) else 0.0
                between = 0.5 if edges[1] - edges[0] >= 5 else 0.0  # noqa: PLR2004
                if high > 0:
                    ink = tuple(int(c) for c in colors[j])
                    canvas.rectangle(edges[j] + between, top - _APART - high, edges[j + 1] - between, top - _APART, ink)  # type: ignore[arg-type]
        if self.row < _NUMBERED or len(self.matrix.steps) == 1:
            return
        below = top + self.row * pooled.values.shape[0] + 16
        canvas.text(right(canvas), below, "mean", size=11, color="quiet", align="right")
        rows = _mean(self.matrix.values, 1, pooled.down)
        for i, words in enumerate(column(rows)):
            bold = pooled.down == 1 and self.matrix.ranks[i] in self.blamed
            y = top + self.row * (i + 0.5) + 4.5
            canvas.text(right(canvas), y, words, size=12, color="ink" if bold else "quiet", align="right")

    def _since(self, canvas: Canvas, top: float, pooled: Pooled) -> None:
        """A dashed line where the finding begins."""
        if self.since is None or self.since not in self.matrix.steps[1:]:
            return
        x = self._edges(canvas, pooled)[self.matrix.steps.index(self.since) // pooled.across]
        y, end = top - self._strip, top + self.row * pooled.values.shape[0]
        while y < end:
            canvas.rectangle(x - 0.75, y, x + 0.75, min(y + 3, end), "critical")
            y += 6

    def _labels(self, canvas: Canvas, top: float, pooled: Pooled) -> None:
        rows, bottom = pooled.values.shape[0], top + self.row * pooled.values.shape[0]
        apart = 1 if self.row >= 15 else -(-14 // self.row)  # noqa: PLR2004
        places = whole_ticks(0, rows - 1, int(rows // apart) + 1) if apart > 1 else range(rows)
        named = [self.matrix.ranks.index(rank) // pooled.down for rank in self.blamed[:1] if rank in self.matrix.ranks]
        for i in sorted({*named, *(i for i in places if all(abs(i - j) >= apart for j in named) or i in named)}):
            rank = self.blamed[0] if i in named and apart > 1 else self.matrix.ranks[i * pooled.down]
            bold = rank in self.blamed and (pooled.down == 1 or i in named)
            y = top + self.row * (i + 0.5) + 4.5
            canvas.text(LABEL, y, f"rank {rank}", color="ink" if bold else "quiet", bold=bold, align="right")
        edges = self._edges(canvas, pooled)
        last = -1e9
        for j in whole_ticks(0, len(edges) - 2, 11):
            words = f"{'step ' if not j else ''}{self.matrix.steps[j * pooled.across]}"
            x = max((edges[j] + edges[j + 1]) / 2, LEFT + canvas.measure(words, size=12) / 2)
            if x - last > canvas.measure(words, size=12) + 8:
                canvas.text(x, bottom + 16, words, size=12, color="quiet", align="middle")
                last = x

    def _mark(self, canvas: Canvas, top: float, pooled: Pooled) -> None:
        if self.marked is None or self.marked not in self.matrix.steps or len(self.matrix.steps) == 1:
            return
        edges = self._edges(canvas, pooled)
        j = self.matrix.steps.index(self.marked) // pooled.across
        x0, x1 = edges[j] - 0.5, edges[j + 1] + 0.5
        y0, y1 = top - 3, top + self.row * pooled.values.shape[0] + 3
        for left, end in ((x0 - 1.5, x0), (x1, x1 + 1.5)):
            canvas.rectangle(left, y0, end, y1, "select")
        for above, below in ((y0, y0 + 1.5), (y1 - 1.5, y1)):
            canvas.rectangle(x0 - 1.5, above, x1 + 1.5, below, "select")


def _mean(values: Reals, axis: int, together: int) -> Reals:
    """Mean over an axis, of `together` neighbours of the other; NaN where nothing is known."""
    known = ~np.isnan(values)
    starts = np.arange(0, values.shape[1 - axis], together)
    sums = np.add.reduceat(np.where(known, values, 0.0).sum(axis=axis), starts)
    counts = np.add.reduceat(known.sum(axis=axis), starts)
    means: Reals = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means
