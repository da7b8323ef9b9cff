# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Other tools' definitions, so that their users find their numbers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter import arrays, schema
from dtscope_jupyter.analysis.activity import Events, activity, events
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, Reals, codes, filtered, ints, is_any
from dtscope_jupyter.analysis.lines import Axis, Covered, Groups, total
from dtscope_jupyter.analysis.overlap import overlap_of
from dtscope_jupyter.analysis.recorded import MS
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables
    from dtscope_jupyter.analysis.waits import Waits

NAMES = ("hta", "tensorboard")
DEVICE = ("comm", "compute", "memcpy", "memset")
_MATTER = ["rank", "step", "kind", "name", "start_ns", "end_ns", "thread", "process_group", "operation", "phase"]
_US = 1000
_TAIL = 0.8
"""Of the device work of the step before: a last step with less is dropped by the TensorBoard plugin."""


def overlap(tables: Tables, keys: tuple[str, ...], convention: str) -> pd.DataFrame:
    """Overlap as another tool defines it.

    hta: HolisticTraceAnalysis 0.6.1, `get_comm_comp_overlap`: kernels whose launch is known and began before the
    last ProfilerStep annotation, host's or device's (all of them where there is only one step), starts rounded up
    and ends down to whole us; then as ours.

    tensorboard: the Computation/Communication Overview of torch-tb-profiler 0.4.3's distributed view, means per step: compute_ms =
    Computation = compute - overlap, overlap_ms = Overlapping, exposed_ms = Communication = comm - overlap, other_ms = the rest of
    the step, memcpy included; communication = kernels of collectives and the host's calls of them (nccl:*). A step lasts from its
    ProfilerStep, or the end on the device of the step before if that is later, to the end of its ProfilerStep or of the last
    kernel launched in it, whichever is later; a last step with under 0.8 of the device work of the one before is dropped.
    Of traces by torch 2 the plugin itself takes NCCL's kernels for computation, as it looks for their calls by an
    External id that calls no longer share with kernels; this is what it says once they do.

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


def check(convention: str, known: tuple[str, ...] = NAMES) -> None:
    """DtscopeError where there is no such convention."""
    if convention not in known:
        message = f"convention={convention!r} is unknown; choose from None, {', '.join(map(repr, known))}"
        raise DtscopeError(message)


def hta_tables(tables: Tables) -> dict[str, pa.Table]:
    """The tables with only the device spans that HolisticTraceAnalysis keeps, at its resolution, and only their columns that matter."""
    spans = tables["spans"]
    spans = filtered(spans.select(_MATTER), is_any(spans, "kind", DEVICE) & _launched_in_time(spans))
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    rounded = {"start_ns": -(-start // _US) * _US, "end_ns": end // _US * _US}
    for name, column in rounded.items():
        spans = spans.set_column(spans.schema.get_field_index(name), spans.schema.field(name), arrays.of_numpy(column))
    return dict(tables) | {"spans": spans, "collectives": schema.COLLECTIVES.empty(), "steps": schema.STEPS.empty()}


def _profiler_steps(spans: pa.Table, found: Ints, names: list[str]) -> Bools:
    """Which spans, of these names, are ProfilerStep annotations, the device's own among them."""
    wanted = np.array([name.startswith("ProfilerStep") for name in names] + [False], dtype=bool)
    return wanted[found] & is_any(spans, "kind", ["annotation"])


def _launched_in_time(spans: pa.Table) -> Bools:
    launch, rank = ints(spans, "launch_ns"), ints(spans, "rank")
    found, names = codes(spans, "name")
    marks = _profiler_steps(spans, found, names)
    used = np.unique(found[marks])
    known: Bools = launch != NONE
    if len(used) <= 1:
        return known
    last = np.full(int(rank.max(initial=0)) + 1, np.iinfo(np.int64).max)
    marked = Groups.by((rank[marks],))
    latest = np.full(marked.count, NONE)
    np.maximum.at(latest, marked.of_row, ints(spans, "start_ns")[marks])
    last[marked.keys[0]] = latest
    in_time: Bools = known & (launch < last[rank])
    return in_time


def _tensorboard(tables: Tables, keys: tuple[str, ...]) -> pd.DataFrame:
    """The split of the TensorBoard plugin's distributed view (`overall_parser`, `step_parser`), a step's mean; see `overlap`."""
    import pandas as pd

    steps = _device_steps(tables)
    found = activity(dict(tables) | {"collectives": schema.COLLECTIVES.empty(), "steps": schema.STEPS.empty()})
    comm, compute, both = _inside(steps, _with_calls(found.comm, tables["spans"]), found.compute)
    frame = pd.DataFrame({
        "rank": steps.rank, "step": steps.step, "comm_ms": comm / MS, "compute_ms": (compute - both) / MS, "overlap_ms": both / MS,
        "exposed_ms": (comm - both) / MS, "other_ms": (steps.end - steps.start - comm - compute + both) / MS,
    })
    done = frame.groupby(list(keys), sort=True).mean().drop(columns=[key for key in ("rank", "step") if key not in keys]).reset_index()
    done["overlap_ratio"] = done["overlap_ms"] / done["comm_ms"].where(done["comm_ms"] > 0)
    return done.assign(source="profiler")


def _with_calls(comm: Events, spans: pa.Table) -> Events:
    """Communication with the host's calls of it, as the plugin adds them."""
    found, names = codes(spans, "name")
    called = np.array([name.startswith(("nccl:", "gloo:")) for name in names] + [False], dtype=bool)[found]
    calls = spans.filter(pa.array(called & is_any(spans, "kind", ["annotation"]) & (ints(spans, "thread") != NONE)))
    more = events(calls, np.zeros(len(calls), np.int64))
    rank, step, start, end = (np.concatenate((getattr(comm, name), getattr(more, name))) for name in ("rank", "step", "start", "end"))
    return Events(rank, step, start, end, np.zeros(len(rank), np.int64), {}, {})


def waits(found: Waits, keys: tuple[str, ...]) -> pd.DataFrame:
    """The Synchronizing/Communication Overview of torch-tb-profiler 0.4.3's distributed view: means per step.

    transfer_ms = Data Transfer Time = union over the step's collectives of the last part of each, as long as the
    shortest duration over ranks; wait_ms = Synchronizing Time = union of the collectives - transfer.
    """
    import pandas as pd

    if not set(keys) <= {"rank", "step"}:
        message = f"convention 'tensorboard' knows rank and step only, not {keys}; choose by from those"
        raise DtscopeError(message)
    rank, step = ints(found.rows, "rank"), ints(found.rows, "step")
    groups = Groups.by((rank, step))
    axis = Axis.of(groups.count, (groups.of_row, found.start, found.end))
    busy = axis.lengths(axis.union(groups.of_row, found.start, found.end))
    moved = axis.lengths(axis.union(groups.of_row, found.end - found.transfer, found.end))
    frame = pd.DataFrame({"rank": groups.keys[0], "step": groups.keys[1], "wait_ms": (busy - moved) / MS, "transfer_ms": moved / MS})
    frame = frame[frame["step"] != NONE]
    done = frame.groupby(list(keys), sort=True)[["wait_ms", "transfer_ms"]].mean()
    return done.reset_index()


def _device_steps(tables: Tables) -> Events:
    spans = tables["spans"]
    kernels = spans.filter(pa.array(is_any(spans, "kind", DEVICE)))
    device = events(kernels, np.zeros(len(kernels), np.int64))
    steps = events(_stepped(tables["steps"]), np.zeros(len(tables["steps"]), np.int64))
    steps = _sorted(steps, device, np.lexsort((steps.start, steps.rank)))
    cells = Groups.by((np.concatenate((steps.rank, device.rank)), np.concatenate((steps.step, device.step))))
    mine, theirs = cells.of_row[: len(steps)], cells.of_row[len(steps) :]
    latest, work = np.full(cells.count, NONE), np.bincount(theirs, minlength=cells.count)[mine]
    np.maximum.at(latest, theirs, device.end)
    start, end = _on_device(steps, latest[mine], _before(steps, device))
    keep = np.ones(len(steps), bool)
    if len(steps) > 1:
        follows = steps.rank[1:] == steps.rank[:-1]
        last = np.append(~follows[1:], True)
        keep[1:] = ~(follows & last & (work[:-1] * _TAIL > work[1:]))
    return Events(steps.rank, steps.step, start, end, steps.source, steps.keys, steps.names).where(keep)


def _sorted(steps: Events, device: Events, order: Ints) -> Events:
    columns = (column[order] for column in (steps.rank, steps.step, steps.start, steps.end, steps.source))
    rank, step, start, end, source = columns
    sorted_steps = Events(rank, step, start, end, source, {key: column[order] for key, column in steps.keys.items()}, steps.names)
    return sorted_steps.where(np.isin(rank, device.rank))


def _before(steps: Events, device: Events) -> Ints:
    """Of each step's rank: end of the device work before the steps' own, or the first step's start."""
    found = np.full(len(steps), NONE)
    for rank in np.unique(steps.rank).tolist():
        mine, own = device.where(device.rank == rank), steps.rank == rank
        within = mine.where(mine.step == steps.step[own][0])
        first = int(within.start.min()) if len(within) else NONE
        outside = mine.where((mine.step == NONE) & (mine.end < first))
        found[own] = max(int(steps.start[own][0]), int(outside.end.max(initial=NONE)))
    return found


def _on_device(steps: Events, latest: Ints, before: Ints) -> tuple[Ints, Ints]:
    """Start and end of each step, each beginning no earlier than the one before has ended on the device."""
    start, end = steps.start.copy(), np.maximum(steps.end, latest)
    for place in range(len(steps)):
        earlier = end[place - 1] if place and steps.rank[place] == steps.rank[place - 1] else before[place]
        start[place] = max(start[place], earlier)
        end[place] = max(end[place], start[place])
    return start, end


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


def extent(groups: Groups, start: Ints, end: Ints) -> Ints:
    """Last end - first start of each group."""
    first, last = np.full(groups.count, np.iinfo(np.int64).max), np.full(groups.count, np.iinfo(np.int64).min)
    np.minimum.at(first, groups.of_row, start)
    np.maximum.at(last, groups.of_row, end)
    length: Ints = last - first
    return length


def breakdown(tables: Tables) -> pd.DataFrame:
    """HolisticTraceAnalysis' `get_temporal_breakdown` of the kernels it keeps, a row a rank.

    kernel = last end - first start; compute = union of compute kernels; idle = kernel - union of all; non_compute = kernel -
    compute - idle; percentages are of kernel, rounded to two digits.
    """
    import pandas as pd

    spans = hta_tables(tables)["spans"]
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    groups = Groups.by((ints(spans, "rank"),))
    axis = Axis.of(groups.count, (groups.of_row, start, end))
    computing = is_any(spans, "kind", ["compute"])
    kernel = extent(groups, start, end)
    compute = _merged(axis, groups.of_row[computing], start[computing], end[computing])
    idle = kernel - _merged(axis, groups.of_row, start, end)
    parts = {"idle": idle, "compute": compute, "non_compute": kernel - compute - idle}
    shares = {f"{name}_pctg": _percent(part, kernel) for name, part in parts.items()}
    lengths = {f"{name}_ms": part / MS for name, part in (parts | {"kernel": kernel}).items()}
    return pd.DataFrame({"rank": groups.keys[0]} | lengths | shares)


def _percent(part: Ints, whole: Ints) -> Reals:
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Reals = np.round(100 * (part / MS) / (whole / MS), 2)
    return share


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
