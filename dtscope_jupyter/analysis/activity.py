# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""When each rank computed and when it communicated, whoever saw it.

Where a profiler saw a step's kernels, they count: comm = communication kernels, compute = every other
kernel; copies and memsets are neither; in a profile of a CPU job, comm = gloo's collectives in flight, compute = operators
other than c10d:: on threads that run no collective. Elsewhere comm = collectives from start to end, and compute = the
training thread's steps (on a device: its compute stream's) without the time it was blocked in a collective
(`host.kind` = collective_wait).

So there are three grades, told apart by `source`. "profiler": exact. "event", "host", "flight_recorder": every collective of the
step was timed; on a CPU that is exact as well, on a device it is not quite: the device's idle gaps, in which the host has launched
nothing yet, count as compute, whereas a profile counts only kernels, so that a host-bound step shows less exposed communication
here than in a profile of it. "estimate": DDP's buckets were only counted, as in most steps on devices and, where the budget asks
for it, on a CPU; exposed communication is then the rank's own `steps.exposed_ms`: on a device the time its compute stream waited for
DDP's last bucket, between two events, idle gaps again as compute; on a CPU the time from the last gradient to the end of the backward
in which the thread did not compute. Communication, compute and overlap of such a step are not known (NaN, never 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dtscope_jupyter import intervals
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, among, codes, distinct, filtered, ints, is_any, reals
from dtscope_jupyter.analysis.lines import Axis, Groups
from dtscope_jupyter.analysis.phases import PHASES, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

Tables: TypeAlias = "Mapping[str, pa.Table]"

KEYS = ("process_group", "operation", "phase")
_EVENT = ["rank", "step", "start_ns", "end_ns", *KEYS]
SOURCES = ("profiler", "event", "host", "flight_recorder")
_STEP_BITS = 40


@dataclass(frozen=True, slots=True)
class Events:
    """Intervals of many ranks, as arrays of one length: rank, step (`NONE` outside of steps), start, end.

    `source` is a place in `SOURCES`, `keys` holds codes of process_group, operation and phase, whose
    texts are in `names`; -1 where unknown.
    """

    rank: Ints
    step: Ints
    start: Ints
    end: Ints
    source: Ints
    keys: dict[str, Ints]
    names: dict[str, list[str]]

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self.rank)

    def where(self, mask: Bools) -> Events:
        """The intervals that the mask admits."""
        if mask.all():
            return self
        keys = {key: column[mask] for key, column in self.keys.items()}
        return Events(self.rank[mask], self.step[mask], self.start[mask], self.end[mask], self.source[mask], keys, self.names)

    def column(self, key: str) -> Ints:
        """The column of a key: rank, step or one of `KEYS`."""
        return self.rank if key == "rank" else self.step if key == "step" else self.keys[key]


@dataclass(frozen=True, slots=True)
class Activity:
    """What a run's ranks did: communication and computation."""

    comm: Events
    compute: Events


def activity(tables: Tables, *, phases: bool = False) -> Activity:
    """Reads communication and computation of every rank from the tables, by the best source of each step.

    With `phases` the computation of recorded steps is cut at the edges of their phases; kernels know theirs anyway.
    """
    comm, compute = _kernels(tables["spans"], "comm"), _kernels(tables["spans"], "compute")
    host_comm, host_compute = _operators(tables, np.unique(np.concatenate((comm.rank, compute.rank))))
    seen = _Seen.of(comm, compute, host_comm)
    comms = [comm, host_comm, _collectives(tables, seen)]
    computes = [compute, host_compute, _host_compute(tables, seen, phases=phases)]
    names = {key: sorted({name for part in (*comms, *computes) for name in part.names[key]}) for key in KEYS}
    return Activity(_joined(comms, names), _joined(computes, names))


@dataclass(frozen=True, slots=True)
class _Seen:
    """Ranks of which a profiler saw kernels, and the steps in which it did."""

    ranks: Ints
    steps: Ints

    @classmethod
    def of(cls, *parts: Events) -> _Seen:
        ranks = np.unique(np.concatenate([np.unique(part.rank) for part in parts]))
        return cls(ranks, distinct(np.concatenate([distinct(pair(part.rank, part.step)) for part in parts])))

    def missing(self, rank: Ints, step: Ints) -> Bools:
        """Rows that a profiler could have seen no kernel of."""
        unseen: Bools = ~np.isin(rank, self.ranks) | (~among(pair(rank, step), self.steps) & (step != NONE))
        return unseen


def pair(rank: Ints, step: Ints) -> Ints:
    """One integer for a rank and a step."""
    return (rank << _STEP_BITS) + np.where(step == NONE, (1 << _STEP_BITS) - 1, step)


def events(table: pa.Table, source: Ints) -> Events:
    """Rows of `spans` or `collectives` that have a start and an end."""
    named = {key: codes(table, key) for key in KEYS}
    found = Events(
        ints(table, "rank"),
        ints(table, "step"),
        ints(table, "start_ns"),
        ints(table, "end_ns"),
        source,
        {key: column for key, (column, _) in named.items()},
        {key: names for key, (_, names) in named.items()},
    )
    return found.where((found.start != NONE) & (found.end != NONE))


def _kernels(spans: pa.Table, kind: str) -> Events:
    wanted = filtered(spans.select(_EVENT), is_any(spans, "kind", [kind]) & (ints(spans, "thread") == NONE))
    return events(wanted, np.zeros(len(wanted), np.int64))


def _operators(tables: Tables, devices: Ints) -> tuple[Events, Events]:
    """Communication and computation of ranks of which there is nothing but a profile of their host."""
    spans, steps = tables["spans"], tables["steps"]
    recorded = np.unique(ints(steps, "rank")[source_codes(steps) > 0])
    rank, thread = ints(spans, "rank"), ints(spans, "thread")
    alone = ~np.isin(rank, np.concatenate((devices, recorded))) & (thread != NONE)
    comm = alone & is_any(spans, "kind", ["comm"])
    if not comm.any():
        nothing = spans.slice(0, 0)
        return events(nothing, np.zeros(0, np.int64)), events(nothing, np.zeros(0, np.int64))
    threads = Groups.by((rank, thread)).of_row
    name, names = codes(spans, "name")
    called = np.array([text.startswith("c10d::") for text in names] + [False], dtype=bool)[name]
    compute = alone & is_any(spans, "kind", ["cpu_op"]) & ~called & ~np.isin(threads, threads[comm]) & np.isin(rank, rank[comm])
    parts = (filtered(spans.select(_EVENT), mask) for mask in (comm, compute))
    first, second = (events(part, np.zeros(len(part), np.int64)) for part in parts)
    return first, second


def _collectives(tables: Tables, seen: _Seen) -> Events:
    table = tables["collectives"]
    found = events(table, source_codes(table))
    keep = seen.missing(found.rank, found.step) & ~among(pair(found.rank, found.step), _in_part(tables["steps"]))
    return found.where(keep & ~((found.source == 0) & np.isin(found.rank, seen.ranks)))


def source_codes(table: pa.Table) -> Ints:
    """The column `source` as places in `SOURCES`; unknown ones count as the last."""
    found, names = codes(table, "source")
    known = [SOURCES.index(name) if name in SOURCES else len(SOURCES) - 1 for name in names]
    return np.array([*known, len(SOURCES) - 1], dtype=np.int64)[found]


def _host_compute(tables: Tables, seen: _Seen, *, phases: bool) -> Events:
    steps = tables["steps"]
    rank, step, start, end = (ints(steps, name) for name in ("rank", "step", "start_ns", "end_ns"))
    source = source_codes(steps)
    start, end = _as_the_device_ran(tables, rank, step, start, end)
    keep = seen.missing(rank, step) & (start != NONE) & (end != NONE) & _told(tables, rank, step)
    rank, step, start, end, source = (column[keep] for column in (rank, step, start, end, source))
    line = np.arange(len(rank), dtype=np.int64)
    blocked = _waits(tables["host"], (rank, start, end))
    axis = Axis.of(len(rank), (line, start, end), blocked)
    free = intervals.difference(axis.union(line, start, end), axis.union(*blocked))
    names: dict[str, list[str]] = {key: [] for key in KEYS}
    keys = dict.fromkeys(KEYS, np.full(len(free[0]), -1, np.int64))
    if phases:
        free, phase = split(free, axis, filtered(steps, keep))
        keys = dict.fromkeys(KEYS, np.full(len(phase), -1, np.int64)) | {"phase": phase}
        names["phase"] = list(PHASES)
    row = axis.line(free[0])
    return Events(rank[row], step[row], free[0] - axis.shift[row], free[1] - axis.shift[row], source[row], keys, names)


def _as_the_device_ran(tables: Tables, rank: Ints, step: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Start and end of the steps, on a device from the last wait of the step before to the last of its own: it runs after its host."""
    devices = codes(tables["devices"], "device")
    cuda = np.array([name.startswith("cuda") for name in devices[1]] + [False], dtype=bool)[devices[0]]
    on_device = np.isin(rank, ints(tables["devices"], "rank")[cuda]) & (step != NONE) & (end != NONE)
    waits = filtered(tables["host"], is_any(tables["host"], "kind", ["collective_wait"]))
    if not on_device.any() or not len(waits):
        return start, end
    key = pair(ints(waits, "rank"), ints(waits, "step"))
    order = np.lexsort((ints(waits, "end_ns"), key))
    key, over = key[order], ints(waits, "end_ns")[order]

    def last(pairs: Ints) -> Ints:
        place = np.searchsorted(key, pairs, side="right") - 1
        return np.where((place >= 0) & (key[place] == pairs), over[place], NONE)

    begun, ended = (np.where(on_device, last(pair(rank, step - back)), NONE) for back in (1, 0))
    return np.where(start == NONE, start, np.maximum(start, begun)), np.maximum(end, ended)


def _told(tables: Tables, rank: Ints, step: Ints) -> Bools:
    """All but the steps in which a rank only counted its collectives, as on a device it does in most: what it computed is not known."""
    known = ~np.isnan(reals(tables["steps"], "comm_ms"))
    counting = np.unique(rank[known | ~np.isnan(reals(tables["steps"], "exposed_ms"))])
    calls = tables["collectives"]
    timed = (ints(calls, "start_ns") != NONE) & (ints(calls, "end_ns") != NONE)
    pairs = pair(rank, step)
    told: Bools = known | ~np.isin(rank, counting) | among(pairs, pair(ints(calls, "rank"), ints(calls, "step"))[timed])
    return told & ~among(pairs, _in_part(tables["steps"]))


def _in_part(steps: pa.Table) -> Ints:
    """Steps (`pair`) of which a rank tells the exposed time alone: whatever collectives it recorded there, DDP's are not among them."""
    rank, step, comm, exposed = ints(steps, "rank"), ints(steps, "step"), reals(steps, "comm_ms"), reals(steps, "exposed_ms")
    return pair(rank, step)[np.isnan(comm) & ~np.isnan(exposed)]


def _waits(host: pa.Table, steps: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """Place among the steps (rank, start, end), start and end of blocked intervals: one for each step of the rank that they reach into.

    By time, as the rank itself counts: a collective called between two steps is labelled with the one before.
    """
    waits = filtered(host, is_any(host, "kind", ["collective_wait"]))
    rank, start, end = (ints(waits, name) for name in ("rank", "start_ns", "end_ns"))
    known = (start != NONE) & (end != NONE)
    rank, start, end = rank[known], start[known], end[known]
    if not len(rank) or not len(steps[0]):
        return rank[:0], start[:0], end[:0]
    ranks = distinct(np.concatenate((steps[0], rank)))
    line, own = (np.searchsorted(ranks, column) for column in (steps[0], rank))
    shift = Axis.of(len(ranks), (line, *steps[1:]), (own, start, end)).shift
    order = np.argsort(steps[1] + shift[line], kind="stable")
    begins = (steps[1] + shift[line])[order]
    first = np.maximum(np.searchsorted(begins, start + shift[own], side="right") - 1, 0)
    count = np.maximum(np.searchsorted(begins, end + shift[own], side="left") - first, 0)
    which = np.repeat(np.arange(len(rank)), count)
    place = order[np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(which))]
    same = steps[0][place] == rank[which]
    return place[same], start[which[same]], end[which[same]]


def _joined(parts: list[Events], names: dict[str, list[str]]) -> Events:
    """All intervals of the parts, their texts as places in `names`."""
    keys = {}
    for key in KEYS:
        place = {name: code for code, name in enumerate(names[key])}
        new = [np.array([*(place[name] for name in part.names[key]), -1], dtype=np.int64) for part in parts]
        keys[key] = np.concatenate([codes[part.keys[key]] for codes, part in zip(new, parts, strict=True)])
    rank, step, start, end, source = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("rank", "step", "start", "end", "source")
    )
    return Events(rank, step, start, end, source, keys, names)
