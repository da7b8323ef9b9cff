# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The timeline of one step: compute thick, communication thin under it, and one collective as a thread through the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.intervals import total
from dtscope_jupyter.view.picture.panel import LABEL, LEFT, TITLE, message, plot_right, right, swatches, title
from dtscope_jupyter.view.picture.scales import coverage, mixed, ticks
from dtscope_jupyter.view.text import column, duration, size

if TYPE_CHECKING:
    from dtscope_jupyter.view.picture.canvas import Canvas
    from dtscope_jupyter.view.scene.calls import Call
    from dtscope_jupyter.view.scene.timeline import Lane, Timeline

_LEGEND = (("compute", "compute"), ("comm under compute", "overlapped"), ("exposed comm", "exposed"), ("idle", "idle"))
_AXIS = 22
_NOTE = 20
_TELLING = 0.02


@dataclass(frozen=True, slots=True)
class Lanes:
    """`name` and `about` go into the title; ranks of `blamed` are in bold."""

    timeline: Timeline | None
    thread: Call | None
    name: str
    about: str
    blamed: list[int]

    @property
    def lane(self) -> int:
        """Height of a lane with its gap."""
        count = len(self.timeline.lanes) if self.timeline else 0
        return 46 if count <= 4 else 36 if count <= 8 else 27  # noqa: PLR2004

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        if self.timeline is None:
            return TITLE + 22
        return TITLE + self.lane * len(self.timeline.lanes) + _AXIS + (_NOTE if self.thread else 0)

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        if self.timeline is None:
            title(canvas, top, self.name, self.about)
            message(canvas, top, "Nothing with a start and an end was recorded, so there is no timeline.")
            return
        title(canvas, top, self.name, self.about, until=swatches(canvas, top, _LEGEND) - 12)
        lanes = self.timeline.lanes
        for i, (lane, bare) in enumerate(zip(lanes, column(total(lane.exposed) / 1e6 for lane in lanes), strict=True)):
            self._lane(canvas, top + TITLE + i * self.lane, lane)
            y = top + TITLE + i * self.lane + sum(self._bars()) / 2 + 4.5
            canvas.text(right(canvas), y, bare, size=12, color="ink" if lane.rank in self.blamed else "quiet", align="right")
        self._axis(canvas, top + TITLE + self.lane * len(lanes))
        canvas.text(right(canvas), top + TITLE + self.lane * len(lanes) + 12, "exposed", size=11, color="quiet", align="right")
        if self.thread is not None:
            self._thread(canvas, top + TITLE, self.thread)

    def _bars(self) -> tuple[float, float, float]:
        """Heights of compute, of what parts it from comm, and of comm."""
        return {46: (22.0, 2.0, 13.0), 36: (17.0, 2.0, 10.0), 27: (12.0, 1.0, 8.0)}[self.lane]

    def _lane(self, canvas: Canvas, top: float, lane: Lane) -> None:
        assert self.timeline is not None
        thick, gap, thin = self._bars()
        name = f"rank {lane.rank}"
        blamed = lane.rank in self.blamed
        canvas.text(LABEL, top + (thick + gap + thin) / 2 + 4.5, name, color="ink" if blamed else "quiet", bold=blamed, align="right")
        end = plot_right(canvas)
        edges = np.linspace(0, self.timeline.length_ns, round((end - LEFT) * canvas.scale) + 1)
        compute = mixed([coverage(lane.compute, edges)], ["compute"], canvas.palette)
        shares = [coverage(lane.exposed, edges), coverage(lane.overlapped, edges)]
        comm = mixed(shares, ["exposed", "overlapped"], canvas.palette)
        canvas.cells(LEFT, top, end, top + thick, compute[None])
        canvas.cells(LEFT, top + thick + gap, end, top + thick + gap + thin, comm[None])

    def _axis(self, canvas: Canvas, top: float) -> None:
        assert self.timeline is not None
        length = self.timeline.length_ns / 1e6
        places = ticks(length, 10)
        for ms in places:
            x = LEFT + (plot_right(canvas) - LEFT) * ms / length
            canvas.rectangle(x - 0.25, top - 5, x + 0.25, top - 1, "quiet")
            canvas.text(max(x, LEFT + 8), top + 12, f"{ms:g}" if ms else "0 ms", size=12, color="quiet", align="middle")

    def _place(self, canvas: Canvas, start_ns: int) -> float:
        assert self.timeline is not None
        return LEFT + (plot_right(canvas) - LEFT) * (start_ns - self.timeline.origin_ns) / self.timeline.length_ns

    def _thread(self, canvas: Canvas, top: float, thread: Call) -> None:
        assert self.timeline is not None
        thick, gap, thin = self._bars()
        rows = {lane.rank: i for i, lane in enumerate(self.timeline.lanes)}
        points = {
            rank: (self._place(canvas, start), top + rows[rank] * self.lane + thick + gap + thin / 2)
            for rank, start in thread.starts.items()
            if rank in rows
        }
        if len(points) > 1:
            canvas.line([points[rank] for rank in sorted(points)], "ink", width=1.3)
        for x, y in points.values():
            canvas.dot(x, y, 3.2, "paper", "ink")
        self._note(canvas, top + self.lane * len(rows) + _AXIS + 12, thread)
        if thread.last in points and thread.wait_ms > 0:
            self._late(canvas, *points[thread.last], thread)

    def _late(self, canvas: Canvas, x: float, y: float, thread: Call) -> None:
        assert self.timeline is not None
        telling = thread.late_ms > _TELLING * self.timeline.length_ns / 1e6
        words = f"last by {duration(thread.late_ms)}"
        width = canvas.measure(words, size=12) + 14
        left = self._freer(canvas, thread.last, (x - width - 9, x + 9), width)
        canvas.rectangle(left, y - 9, left + width, y + 9, "finding" if telling else "panel", radius=4)
        canvas.text(left + 7, y + 4.3, words, size=12, color="warning" if telling else "quiet", bold=telling)

    def _freer(self, canvas: Canvas, rank: int, lefts: tuple[float, float], width: float) -> float:
        """The place before or after the mark that hides less of the rank's communication; before, where both are alike."""
        assert self.timeline is not None
        lane = next(lane for lane in self.timeline.lanes if lane.rank == rank)
        scale = self.timeline.length_ns / (plot_right(canvas) - LEFT)
        hidden = []
        for left in lefts:
            edges = (np.array([left, left + width]) - LEFT) * scale
            outside = left < LEFT or left + width > plot_right(canvas)
            hidden.append(2.0 if outside else float(coverage(lane.exposed, edges)[0] + coverage(lane.overlapped, edges)[0]))
        return lefts[int(np.argmin(hidden))]

    def _note(self, canvas: Canvas, y: float, thread: Call) -> None:
        what = thread.operation + (f" of {size(thread.bytes)}" if thread.bytes else "")
        words = f"line: start of the {what} that was waited for most; {duration(thread.lost_ms)} lost over {len(thread.starts)} ranks"
        canvas.text(LEFT, y + 4, canvas.fit(words, right(canvas) - LEFT, size=12), size=12, color="quiet")
