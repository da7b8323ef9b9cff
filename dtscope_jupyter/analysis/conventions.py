# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Other tools' definitions, so that their users find their numbers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.analysis.activity import Events, events
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, codes, ints, is_any
from dtscope_jupyter.analysis.lines import Axis, Covered, Groups
from dtscope_jupyter.analysis.overlap import MS, activity, overlap_of
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

NAMES = ("hta", "tensorboard")
DEVICE = ("comm", "compute", "memcpy", "memset")
_US = 1000


def overlap(tables: Tables, keys: tuple[str, ...], convention: str) -> pd.DataFrame:
    """Overlap as another tool defines it.

    hta: HolisticTraceAnalysis 0.6.1, `get_comm_comp_overlap`: kernels whose launch is known and began before the
    last ProfilerStep annotation, host's or device's (all of them where there is only one step), starts rounded up
    and ends down to whole us; then as ours. tensorboard: the plugin's distributed view, see `_tensorboard`; means per step.

    Raises:
        DtscopeError: Another convention than these, or a key that it does not have.
    """
    check(convention)
    if convention == "hta":
        return overlap_of(activity(hta_tables(tables)), keys, schema.STEPS.empty())
    if not set(keys) <= {"rank", "step"}:
        message = f"convention 'tensorboard' knows rank and step only, not {keys}; choose by from those"
        raise DtscopeError(message)
    return _tensorboard(tables, keys)


def check(convention: str) -> None:
    """DtscopeError where there is no such convention."""
    if convention not in NAMES:
        message = f"convention={convention!r} is unknown; choose from None, {', '.join(map(repr, NAMES))}"
        raise DtscopeError(message)


def hta_tables(tables: Tables) -> dict[str, pa.Table]:
    """The tables with only the device spans that HolisticTraceAnalysis keeps, at its resolution."""
    spans = tables["spans"]
    spans = spans.filter(pa.array(is_any(spans, "kind", DEVICE) & _launched_in_time(spans)))
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    rounded = {"start_ns": -(-start // _US) * _US, "end_ns": end // _US * _US}
    for name, column in rounded.items():
        spans = spans.set_column(spans.schema.get_field_index(name), spans.schema.field(name), pa.array(column))
    return dict(tables) | {"spans": spans, "collectives": schema.COLLECTIVES.empty(), "steps": schema.STEPS.empty()}


def profiler_steps(spans: pa.Table) -> Bools:
    """Which spans are ProfilerStep annotations, the device's own among them."""
    found, names = codes(spans, "name")
    wanted = np.array([name.startswith("ProfilerStep") for name in names] + [False], dtype=bool)
    return wanted[found] & is_any(spans, "kind", ["annotation"])


def _launched_in_time(spans: pa.Table) -> Bools:
    launch, rank = ints(spans, "launch_ns"), ints(spans, "rank")
    marks = profiler_steps(spans)
    _, names = codes(spans.filter(pa.array(marks)), "name")
    used = np.unique(codes(spans, "name")[0][marks])
    known: Bools = launch != NONE
    if len(names) == 0 or len(used) <= 1:
        return known
    last = np.full(int(rank.max(initial=0)) + 1, np.iinfo(np.int64).max)
    marked = Groups.by((rank[marks],))
    latest = np.full(marked.count, NONE)
    np.maximum.at(latest, marked.of_row, ints(spans, "start_ns")[marks])
    last[marked.keys[0]] = latest
    in_time: Bools = known & (launch < last[rank])
    return in_time


def _tensorboard(tables: Tables, keys: tuple[str, ...]) -> pd.DataFrame:
    """The split of the TensorBoard plugin's distributed view, a step's mean.

    A step lasts from the end of the step before on the device (the first: from its ProfilerStep) to the end of its
    ProfilerStep or of the last kernel launched in it, whichever is later. compute_ms = Computation = compute - overlap,
    overlap_ms = Overlapping, exposed_ms = Communication = comm - overlap, other_ms = the rest of the step; memcpy counts as other.
    """
    import pandas as pd

    steps = _device_steps(tables)
    found = activity(dict(tables) | {"collectives": schema.COLLECTIVES.empty(), "steps": schema.STEPS.empty()})
    comm, compute, both = _inside(steps, found.comm, found.compute)
    frame = pd.DataFrame({
        "rank": steps.rank, "step": steps.step, "comm_ms": comm / MS, "compute_ms": (compute - both) / MS, "overlap_ms": both / MS,
        "exposed_ms": (comm - both) / MS, "other_ms": (steps.end - steps.start - comm - compute + both) / MS,
    })
    done = frame.groupby(list(keys), sort=True).mean().drop(columns=[key for key in ("rank", "step") if key not in keys]).reset_index()
    done["overlap_ratio"] = done["overlap_ms"] / done["comm_ms"].where(done["comm_ms"] > 0)
    return done.assign(source="profiler")


def _device_steps(tables: Tables) -> Events:
    spans = tables["spans"]
    kernels = spans.filter(pa.array(is_any(spans, "kind", DEVICE)))
    device = events(kernels, np.zeros(len(kernels), np.int64))
    steps = events(_stepped(tables["steps"]), np.zeros(len(tables["steps"]), np.int64))
    steps = steps.where(np.isin(steps.rank, device.rank))
    order = np.lexsort((steps.start, steps.rank))
    rank, step, start, end = (column[order] for column in (steps.rank, steps.step, steps.start, steps.end))
    all_rows = Groups.by((np.concatenate((rank, device.rank)), np.concatenate((step, device.step))))
    latest = np.full(all_rows.count, NONE)
    np.maximum.at(latest, all_rows.of_row, np.concatenate((end, device.end)))
    end = latest[all_rows.of_row[: len(rank)]]
    follows = rank[1:] == rank[:-1]
    start[1:] = np.where(follows, end[:-1], start[1:])
    return Events(rank, step, start, np.maximum(start, end), np.zeros(len(rank), np.int64), steps.keys, steps.names)


def _stepped(steps: pa.Table) -> pa.Table:
    nothing = pa.nulls(len(steps), pa.utf8())
    for name in ("process_group", "operation", "phase"):
        steps = steps.append_column(name, nothing)
    return steps


def _inside(steps: Events, comm: Events, compute: Events) -> tuple[Ints, Ints, Ints]:
    """Communication, computation and both at once within each step's time."""
    from dtscope_jupyter import intervals

    ranks = Groups.by((np.concatenate((steps.rank, comm.rank, compute.rank)),))
    a, b = len(steps), len(steps) + len(comm)
    lines = ranks.of_row[:a], ranks.of_row[a:b], ranks.of_row[b:]
    parts = (steps, comm, compute)
    axis = Axis.of(ranks.count, *((line, part.start, part.end) for line, part in zip(lines, parts, strict=True)))
    sets = [axis.union(line, part.start, part.end) for line, part in zip(lines[1:], parts[1:], strict=True)]
    shift = axis.shift[lines[0]]
    within = [Covered.of(one).within(steps.start + shift, steps.end + shift) for one in (*sets, intervals.intersection(*sets))]
    return within[0], within[1], within[2]
