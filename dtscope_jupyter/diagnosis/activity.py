# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What each rank did in a window of time: where a straggler's time went before it arrived.

Where a profiler saw the device, a window splits without remainder into compute, copy (device copies without
compute), the host's reasons for an idle device (garbage_collection, input, host_sync, host_copy), host_stall (idle while
the host launched nothing for long), launch (idle between launches close together: the host is the bottleneck)
and comm (communication alone). Without device spans the training thread's time is split by what the host told:
the same reasons, comm (blocked in a collective), and own (anything else).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter import intervals
from dtscope_jupyter.analysis import columns, lines
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, Reals
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dtscope_jupyter.diagnosis.steps import Steps
    from dtscope_jupyter.intervals import Set

REASONS = {"gc": "garbage_collection", "input": "input", "host_sync": "host_sync", "copy": "host_copy"}
"""Kinds of the table `host`, in the order in which they claim time that several cover."""
_CLOSE_NS, _MANY = 250_000, 8
"""Eight synchronisations and more, no further apart than this, are a loop."""
_LONG_GAP_NS = 1_000_000
"""A host that launches nothing for so long is stalled; between closer launches it is only busy."""


@dataclass(frozen=True)
class Activity:
    """Sets of intervals of all ranks, laid on one axis; times are shifted as in `pairs`."""

    tables: Mapping[str, pa.Table]
    ranks: Ints
    shift: Ints
    steps: Steps

    @cached_property
    def device(self) -> bool:
        """Whether a profiler saw compute kernels."""
        return "compute" in self._span_kind[1] and len(self._device("compute")[0]) > 0

    def split(self, rank: Ints, starts: Ints, ends: Ints) -> dict[str, Reals]:
        """Milliseconds of each window by what it was spent on; windows are (rank row, start, end)."""
        shift = self.axis.shift[rank]
        low, high = self._bounds
        starts = np.clip(starts, low[rank], high[rank]) + shift
        ends = np.maximum(np.clip(ends, low[rank], high[rank]) + shift, starts)
        covered = {name: kept.within(starts, ends) / 1e6 for name, kept in self._parts.items()}
        rest = (ends - starts) / 1e6 - sum(covered.values())
        return {**covered, "launch" if self.device else "own": np.maximum(rest, 0.0)}

    @cached_property
    def alone(self) -> Set:
        """Communication without compute beside it, on the axis."""
        return _claim(self.comm, self._device("compute"))[0]

    @cached_property
    def comm(self) -> Set:
        """Collectives and communication kernels, on the axis."""
        return _join(self._comm, self._device("comm"))

    def inside(self, chosen: Set, steps: Steps) -> Reals:
        """Milliseconds of a set inside each step (R, S), NaN where a rank has no such step."""
        found = np.full(steps.shape, np.nan)
        known = steps.start != NONE
        rank, starts, ends = self._step_times
        shift = self.axis.shift[rank]
        found[known] = lines.Covered.of(chosen).within(starts + shift, ends + shift) / 1e6
        return found

    @cached_property
    def axis(self) -> lines.Axis:
        """One line a rank."""
        return lines.Axis.of(len(self.ranks), *self._times, self._step_times)

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        count = len(self.ranks)
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        for rank, starts, ends in (*self._times, self._step_times):
            np.minimum.at(low, rank, starts)
            np.maximum.at(high, rank, ends)
        empty = low > high
        low[empty], high[empty] = 0, 0
        return low, high

    @cached_property
    def _step_times(self) -> tuple[Ints, Ints, Ints]:
        known = self.steps.start != NONE
        rank = np.nonzero(known)[0]
        return rank, self.steps.start[known] + self.shift[rank], self.steps.end[known] + self.shift[rank]

    @cached_property
    def _times(self) -> tuple[tuple[Ints, Ints, Ints], ...]:
        return self._span_times, self._host_times, self._of("collectives")

    @cached_property
    def _span_times(self) -> tuple[Ints, Ints, Ints]:
        return self._of("spans")

    @cached_property
    def _host_times(self) -> tuple[Ints, Ints, Ints]:
        return self._of("host")

    @cached_property
    def _span_kind(self) -> tuple[Ints, list[str]]:
        return columns.codes(self.tables["spans"], "kind")

    @cached_property
    def _host_kind(self) -> tuple[Ints, list[str]]:
        return columns.codes(self.tables["host"], "kind")

    def _known(self, name: str) -> Bools:
        table = self.tables[name]
        start, end = columns.ints(table, "start_ns"), columns.ints(table, "end_ns")
        known: Bools = (position(self.ranks, columns.ints(table, "rank")) >= 0) & (start != NONE) & (end != NONE) & (end >= start)
        return known

    def _of(self, name: str) -> tuple[Ints, Ints, Ints]:
        table, known = self.tables[name], self._known(name)
        rank = position(self.ranks, columns.ints(table, "rank"))[known]
        shift = self.shift[rank]
        return rank, columns.ints(table, "start_ns")[known] + shift, columns.ints(table, "end_ns")[known] + shift

    def _device(self, *kinds: str) -> Set:
        return self._set(self._span_times, _is(self._span_kind, kinds, self._known("spans")))

    def _told(self, *kinds: str) -> Set:
        return self._set(self._host_times, _is(self._host_kind, kinds, self._known("host")))

    def _set(self, times: tuple[Ints, Ints, Ints], chosen: Bools) -> Set:
        rank, starts, ends = (part[chosen] for part in times)
        return self.axis.union(rank, starts, ends)

    @cached_property
    def _comm(self) -> Set:
        rank, starts, ends = self._times[2]
        return self.axis.union(rank, starts, ends)

    @cached_property
    def _parts(self) -> dict[str, lines.Covered]:
        taken = self._device("compute") if self.device else self._told("collective_wait")
        parts = {"compute" if self.device else "comm": taken}
        if self.device:
            parts["copy"], taken = _claim(self._device("memcpy", "memset"), taken)
            parts["comm"], taken = _claim(self.comm, taken)
        for kind, name in REASONS.items():
            told = self._told(kind)
            parts[name], taken = _claim(told if self.device or kind != "host_sync" else loops(told), taken)
        if self.device:
            parts["host_stall"], taken = _claim(self._launch_gaps, taken)
        return {name: lines.Covered.of(part) for name, part in parts.items()}

    @cached_property
    def _launch_gaps(self) -> Set:
        rank, starts, _ = self._span_times
        chosen = _is(self._span_kind, ("launch",), self._known("spans"))
        edge_rank, edge, _ = self._step_times
        rank = np.concatenate((rank[chosen], edge_rank))
        starts = np.concatenate((starts[chosen], edge)) + self.axis.shift[rank]
        order = np.argsort(starts, kind="stable")
        rank, starts = rank[order], starts[order]
        long = (np.diff(starts) > _LONG_GAP_NS) & (rank[1:] == rank[:-1])
        return intervals.union(starts[:-1][long], starts[1:][long])


def loops(told: Set) -> Set:
    """`told` with loops of short synchronisations as one interval each: between two of many in a row nothing runs ahead of the host."""
    starts, ends = told
    new = np.concatenate(([True], starts[1:] - ends[:-1] > _CLOSE_NS))[: len(starts)]
    of = np.cumsum(new) - 1
    many = np.bincount(of, minlength=1)[of] >= _MANY if len(of) else np.zeros(0, dtype=bool)
    inner = many[:-1] & ~new[1:] if len(of) else many
    return intervals.union(np.concatenate((starts, ends[:-1][inner])), np.concatenate((ends, starts[1:][inner])))


def _is(kind: tuple[Ints, list[str]], wanted: tuple[str, ...], known: Bools) -> Bools:
    mask = np.array([name in wanted for name in kind[1]] + [False], dtype=bool)
    return mask[kind[0][known]]


def _join(a: Set, b: Set) -> Set:
    return intervals.union(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1])))


def _claim(wanted: Set, taken: Set) -> tuple[Set, Set]:
    """What of `wanted` nobody has taken, and all that is taken then."""
    return intervals.difference(wanted, taken), _join(wanted, taken)
