# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Time in which nothing computed or communicated: copies, and gaps by their reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter import intervals
from dtscope_jupyter.analysis import conventions
from dtscope_jupyter.analysis.activity import pair
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, codes, ints, is_any, texts
from dtscope_jupyter.analysis.lines import Axis, Groups, total
from dtscope_jupyter.analysis.phases import PHASES, split
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.activity import Activity, Events

KERNEL_DELAY_NS = 5_000
"""Gaps shorter than this between kernels that were launched in time are the device's own (about the latency of a launch)."""
IDLE = ("idle_host_ms", "idle_kernel_ms", "idle_other_ms")


def on_device(spans: pa.Table, keys: tuple[str, ...], delay: int) -> pd.DataFrame:
    """By rank, step and phase as asked: wall_ms, copy_ms, idle_ms (their sum of reasons) and the reasons of gaps; see `breakdown`."""
    import pandas as pd

    keep = is_any(spans, "kind", conventions.DEVICE) & (ints(spans, "start_ns") != NONE) & (ints(spans, "end_ns") != NONE)
    if "step" in keys:
        keep &= ints(spans, "step") != NONE
    spans = spans.filter(pa.array(keep))
    start, end, launch = (ints(spans, name) for name in ("start_ns", "end_ns", "launch_ns"))
    lines = Groups.by(tuple(ints(spans, key) for key in keys if key != "phase"))
    phase, names = codes(spans, "phase") if "phase" in keys else (np.zeros(len(spans), np.int64), [])
    cells = Groups.by((lines.of_row, phase)) if "phase" in keys else Groups(lines.of_row, (np.arange(lines.count),))
    axis = Axis.of(lines.count, (lines.of_row, start, end))
    gaps = _gaps(axis, axis.union(lines.of_row, start, end), lines.of_row, (start, launch))
    idle = _reasons(gaps, cells, delay)
    columns = {"wall_ms": conventions.extent(cells, start, end) / MS, "copy_ms": _copies(spans, axis, lines, cells) / MS}
    columns |= {"idle_ms": np.sum(idle, axis=0) / MS} | {name: part / MS for name, part in zip(IDLE, idle, strict=True)}
    frame = pd.DataFrame(columns)
    for key, column in zip((key for key in keys if key != "phase"), lines.keys, strict=True):
        frame[key] = column[cells.keys[0]]
    return frame.assign(phase=texts(cells.keys[1], names)) if "phase" in keys else frame


def _copies(spans: pa.Table, axis: Axis, lines: Groups, cells: Groups) -> Ints:
    """Length of each cell's copies and memsets beside no kernel of its line."""
    start, end, line = ints(spans, "start_ns"), ints(spans, "end_ns"), lines.of_row
    working = is_any(spans, "kind", ("comm", "compute"))
    busy = axis.union(line[working], start[working], end[working])
    found = np.zeros(cells.count, np.int64)
    moved = np.flatnonzero(~working)
    if not len(moved):
        return found
    own = Groups.by((cells.of_row[moved],))
    wide = Axis.of(own.count, (own.of_row, start[moved], end[moved]))
    united = wide.union(own.of_row, start[moved], end[moved])
    mine = wide.line(united[0])
    home = np.zeros(cells.count, np.int64)
    home[cells.of_row] = line
    shift = axis.shift[home[own.keys[0][mine]]] - wide.shift[mine]
    hidden = _within(busy, united[0] + shift, united[1] + shift)
    found[own.keys[0]] = total(mine, united[1] - united[0] - hidden, own.count)
    return found


def _within(covered: intervals.Set, starts: Ints, ends: Ints) -> Ints:
    from dtscope_jupyter.analysis.lines import Covered

    return Covered.of(covered).within(starts, ends)


def _gaps(axis: Axis, busy: intervals.Set, line: Ints, times: tuple[Ints, Ints]) -> tuple[Ints, Ints, Bools]:
    """Of each gap between what a line does: its length, the row that ends it, and whether the host launched that after the gap began."""
    of_busy = axis.line(busy[0])
    inner = np.flatnonzero(of_busy[1:] == of_busy[:-1])
    gap_start, gap_end, gap_line = busy[1][inner], busy[0][inner + 1], of_busy[inner]
    start, launch = times
    position = start + axis.shift[line]
    order = np.argsort(position, kind="stable")
    follower = order[np.searchsorted(position[order], gap_end, side="left")] if len(order) else np.zeros(0, np.int64)
    launched = launch[follower] + axis.shift[gap_line]
    late: Bools = (launch[follower] != NONE) & (launched > gap_start)
    return gap_end - gap_start, follower, late


def _reasons(gaps: tuple[Ints, Ints, Bools], cells: Groups, delay: int) -> tuple[Ints, Ints, Ints]:
    """Idle time of each cell by reason: waiting for the host, for the kernel, other."""
    length, follower, host = gaps
    short: Bools = ~host & (length < delay)
    cell = cells.of_row[follower]
    first, second, third = (total(cell[mask], length[mask], cells.count) for mask in (host, short, ~host & ~short))
    return first, second, third


def on_host(steps: pa.Table, found: Activity, keys: tuple[str, ...]) -> pd.DataFrame:
    """Of recorded steps, by rank, step and phase as asked: wall_ms = the step; idle_ms of each phase; reasons are not known."""
    import pandas as pd

    start, end = ints(steps, "start_ns"), ints(steps, "end_ns")
    steps = steps.filter(pa.array((start != NONE) & (end > start)))
    rank, step, start, end = (ints(steps, name) for name in ("rank", "step", "start_ns", "end_ns"))
    frame = pd.DataFrame({"rank": rank, "step": step, "wall_ms": (end - start) / MS})
    if "phase" in keys:
        frame = _by_phase(steps, found)
    frame = frame.groupby(list(keys), dropna=False, sort=True).sum().reset_index() if frame.duplicated(list(keys)).any() else frame
    return frame.assign(copy_ms=0.0, **dict.fromkeys(IDLE, np.nan))


def _by_phase(steps: pa.Table, found: Activity) -> pd.DataFrame:
    """Wall and idle time of each phase of each step."""
    import pandas as pd

    rank, step, start, end = (ints(steps, name) for name in ("rank", "step", "start_ns", "end_ns"))
    line = np.arange(len(steps))
    axis = Axis.of(len(steps), (line, start, end))
    whole = axis.union(line, start, end)
    pieces, phase = split(whole, axis, steps)
    idle, idle_phase = split(intervals.difference(whole, _busy(found, axis, (rank, step, start, end))), axis, steps)
    cells = {}
    for name, covered, of in (("wall_ms", pieces, phase), ("idle_ms", idle, idle_phase)):
        place = axis.line(covered[0]) * 4 + of + 1
        cells[name] = total(place, covered[1] - covered[0], 4 * len(steps)).reshape(-1, 4) / MS
    shown = np.flatnonzero(cells["wall_ms"].ravel())
    named = np.array([None, *PHASES], dtype=object)
    lengths = {name: part.ravel()[shown] for name, part in cells.items()}
    return pd.DataFrame({"rank": rank[shown // 4], "step": step[shown // 4], "phase": named[shown % 4], **lengths})


def _busy(found: Activity, axis: Axis, steps: tuple[Ints, Ints, Ints, Ints]) -> intervals.Set:
    """What computes or communicates in its own step, on the axis of the steps."""
    rank, step, start, end = steps
    own = pair(rank, step)
    order = np.argsort(own, kind="stable")
    sets = []
    for part in (found.comm, found.compute):
        wanted = pair(part.rank, part.step)
        place = order[np.minimum(np.searchsorted(own[order], wanted), max(len(order) - 1, 0))] if len(order) else np.zeros(0, np.int64)
        mine = own[place] == wanted if len(order) else np.zeros(len(wanted), bool)
        place, cut = place[mine], _cut(part, mine)
        sets.append((place, np.maximum(cut[0], start[place]), np.minimum(cut[1], end[place])))
    row, first, last = (np.concatenate(both) for both in zip(*sets, strict=True))
    return axis.union(row, first, last)


def _cut(part: Events, mine: Bools) -> tuple[Ints, Ints]:
    return part.start[mine], part.end[mine]
