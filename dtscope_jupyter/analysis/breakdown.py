# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where each rank's time went: compute, communication, copies, idle and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis import conventions
from dtscope_jupyter.analysis.activity import activity
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, ints, is_any
from dtscope_jupyter.analysis.lines import Axis, Groups, total
from dtscope_jupyter.analysis.overlap import MS, keys_of, overlap_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dtscope_jupyter import intervals
    from dtscope_jupyter.analysis.activity import Tables

KERNEL_DELAY_NS = 5_000
"""Gaps shorter than this between kernels that were launched in time are the device's own (about the latency of a launch)."""
_IDLE = ("idle_host_ms", "idle_kernel_ms", "idle_other_ms")


def breakdown(
    tables: Tables, by: str | Sequence[str] = "rank", convention: str | None = None, kernel_delay_ns: int = KERNEL_DELAY_NS,
) -> pd.DataFrame:
    """Splits time into compute + exposed + copy + idle = wall.

    On a device: wall = last end - first start of the row's own kernels, copies and memsets; copy = copies and memsets beside
    neither compute nor communication; idle = wall without any of them. A gap's reason, after HolisticTraceAnalysis, on
    the device as a whole: host wait where the next kernel was launched after the gap began, else kernel wait where the
    gap is shorter than `kernel_delay_ns`, else other. On a CPU: wall = steps, idle = neither compute nor comm, without reason.

    Args:
        tables: The run's tables.
        by: rank, or rank and step.
        convention: "hta" gives HolisticTraceAnalysis' temporal breakdown of the kernels it keeps: rank, idle_ms, compute_ms,
            non_compute_ms = kernel - compute - idle, kernel_ms = last end - first start, and their percentages.
        kernel_delay_ns: See above, ns.

    Returns:
        `by`, wall_ms, compute_ms, comm_ms, overlap_ms, exposed_ms, copy_ms, idle_ms, idle_host_ms, idle_kernel_ms,
        idle_other_ms, source.

    Raises:
        DtscopeError: An unknown `by` or convention.
    """
    keys = keys_of(by, ("rank", "step"))
    if convention is not None:
        conventions.check(convention)
        if convention == "hta":
            return _hta(conventions.hta_tables(tables))
        return conventions.overlap(tables, keys, convention)
    return _ours(tables, ("rank", *(key for key in keys if key != "rank")), kernel_delay_ns)


def _ours(tables: Tables, keys: tuple[str, ...], delay: int) -> pd.DataFrame:
    import pandas as pd

    found = overlap_of(activity(tables), keys, tables["steps"])
    spent = pd.concat([part for part in (_device(tables["spans"], keys, delay), _host(tables, keys)) if len(part)] or [_empty(keys)])
    spent = spent.drop_duplicates(list(keys), keep="first")
    frame = found.merge(spent, on=list(keys), how="left")
    frame["copy_ms"] = (frame.pop("busy_ms") - frame["compute_ms"] - frame["exposed_ms"]).clip(lower=0)
    frame.loc[frame["idle_host_ms"].isna(), "copy_ms"] = 0.0
    frame["idle_ms"] = (frame["wall_ms"] - frame["compute_ms"] - frame["exposed_ms"] - frame["copy_ms"]).clip(lower=0)
    order = ["wall_ms", "compute_ms", "comm_ms", "overlap_ms", "exposed_ms", "copy_ms", "idle_ms", *_IDLE, "source"]
    return frame[[*keys, *order]]


def _empty(keys: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: np.zeros(0) for name in ("wall_ms", "busy_ms", *_IDLE)} | {key: np.zeros(0, np.int64) for key in keys})


def _device(spans: pa.Table, keys: tuple[str, ...], delay: int) -> pd.DataFrame:
    import pandas as pd

    keep = is_any(spans, "kind", conventions.DEVICE) & (ints(spans, "start_ns") != NONE) & (ints(spans, "end_ns") != NONE)
    if "step" in keys:
        keep &= ints(spans, "step") != NONE
    spans = spans.filter(pa.array(keep))
    start, end, launch = (ints(spans, name) for name in ("start_ns", "end_ns", "launch_ns"))
    groups = Groups.by(tuple(ints(spans, key) for key in keys))
    axis = Axis.of(groups.count, (groups.of_row, start, end))
    busy = axis.union(groups.of_row, start, end)
    wall = _extent(groups, start, end)
    idle = _reasons(axis, busy, groups.of_row, (start, launch), delay)
    columns = {"wall_ms": wall / MS, "busy_ms": axis.lengths(busy) / MS} | dict(zip(_IDLE, (part / MS for part in idle), strict=True))
    return pd.DataFrame(dict(zip(keys, groups.keys, strict=True)) | columns)


def _extent(groups: Groups, start: Ints, end: Ints) -> Ints:
    first, last = np.full(groups.count, np.iinfo(np.int64).max), np.full(groups.count, np.iinfo(np.int64).min)
    np.minimum.at(first, groups.of_row, start)
    np.maximum.at(last, groups.of_row, end)
    extent: Ints = last - first
    return extent


def _reasons(axis: Axis, busy: intervals.Set, line: Ints, times: tuple[Ints, Ints], delay: int) -> tuple[Ints, Ints, Ints]:
    """Idle time of each line by reason: waiting for the host, for the kernel, other."""
    of_busy = axis.line(busy[0])
    inner = np.flatnonzero(of_busy[1:] == of_busy[:-1])
    gap_start, gap_end, gap_line = busy[1][inner], busy[0][inner + 1], of_busy[inner]
    start, launch = times
    position = start + axis.shift[line]
    order = np.argsort(position, kind="stable")
    follower = order[np.searchsorted(position[order], gap_end, side="left")] if len(order) else np.zeros(0, np.int64)
    launched = launch[follower] + axis.shift[gap_line]
    host: Bools = (launch[follower] != NONE) & (launched > gap_start)
    length = gap_end - gap_start
    short: Bools = ~host & (length < delay)
    count = len(axis.begin)
    return tuple(total(gap_line[mask], length[mask], count) for mask in (host, short, ~host & ~short))  # type: ignore[return-value]


def _host(tables: Tables, keys: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    steps = tables["steps"]
    start, end = ints(steps, "start_ns"), ints(steps, "end_ns")
    keep = (start != NONE) & (end != NONE)
    rows = [ints(steps, key)[keep] for key in keys]
    groups = Groups.by(tuple(rows))
    axis = Axis.of(groups.count, (groups.of_row, start[keep], end[keep]))
    wall = axis.lengths(axis.union(groups.of_row, start[keep], end[keep])) / MS
    columns = {"wall_ms": wall, "busy_ms": wall * 0} | dict.fromkeys(_IDLE, np.nan)
    return pd.DataFrame(dict(zip(keys, groups.keys, strict=True)) | columns)


def _hta(tables: Tables) -> pd.DataFrame:
    import pandas as pd

    spans = tables["spans"]
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    groups = Groups.by((ints(spans, "rank"),))
    axis = Axis.of(groups.count, (groups.of_row, start, end))
    computing = is_any(spans, "kind", ["compute"])
    kernel = _extent(groups, start, end)
    compute = _merged(axis, groups.of_row[computing], start[computing], end[computing])
    idle = kernel - _merged(axis, groups.of_row, start, end)
    frame = pd.DataFrame({"rank": groups.keys[0]})
    for name, part in (("idle", idle), ("compute", compute), ("non_compute", kernel - compute - idle), ("kernel", kernel)):
        frame[f"{name}_ms"] = part / MS
    for name in ("idle", "compute", "non_compute"):
        frame[f"{name}_pctg"] = (100 * frame[f"{name}_ms"] / frame["kernel_ms"]).round(2)
    return frame


def _merged(axis: Axis, line: Ints, start: Ints, end: Ints) -> Ints:
    """Length of the union as HolisticTraceAnalysis sums it: a lone kernel within one microsecond counts -1 us once rounded."""
    shift = axis.shift[line]
    order = np.argsort(start + shift, kind="stable")
    start, end = (start + shift)[order], (end + shift)[order]
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > np.maximum.accumulate(end)[:-1]
    if not len(start):
        return np.zeros(len(axis.begin), np.int64)
    begins = np.flatnonzero(first)
    return total(line[order][begins], np.maximum.reduceat(end, begins) - start[begins], len(axis.begin))
