# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of a trace, with what their spans add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter import intervals
from dtscope_jupyter.ingest import rows
from dtscope_jupyter.ingest.columns import SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from dtscope_jupyter.ingest.columns import Bools, Spans
    from dtscope_jupyter.ingest.timeline import Timeline
    from dtscope_jupyter.intervals import Ints, Set

_MS = 1e-6


def summed(rank: int, timeline: Timeline, comm: Bools, compute: Bools, step: Ints, host: Spans, device: Spans, base: int) -> pa.Table:
    """One row a step: its host span, backward and optimizer, and the union of its kernels.

    `comm`, `compute` and `step` are by span, hosts before devices: a kernel belongs to the step that launched it. comm_ms =
    |union of communication kernels|, compute_ms = |union of the other kernels|, overlap = |both|, exposed = comm
    without compute. In a trace without kernels comm is gloo's collectives in flight, compute the operators (`operators`).
    """
    start, end = np.concatenate((host.start, device.start)), np.concatenate((host.end, device.end))
    covered = (_by_step(kind, step, timeline.step, start, end) for kind in (comm, compute))
    sums = [_sums(*both) for both in zip(*covered, strict=True)]
    backward, optimizer = timeline.within(timeline.backward), timeline.within(timeline.optimizer)
    times = dict(
        zip(("backward_start_ns", "backward_end_ns", "optimizer_start_ns", "optimizer_end_ns"), (*backward, *optimizer), strict=True)
    )
    columns = {
        "rank": rank,
        "step": timeline.step,
        "start_ns": timeline.start + base,
        "end_ns": timeline.end + base,
        **{name: rows.optional(np.where(value >= 0, value + base, -1)) for name, value in times.items()},
        **{name: np.array([s[i] for s in sums], float) for i, name in enumerate(("comm_ms", "compute_ms", "overlap_ms", "exposed_ms"))},
        "source": "profiler",
    }
    return rows.from_columns("steps", len(timeline.step), columns)


def _by_step(kind: Bools, step: Ints, numbers: Ints, start: Ints, end: Ints) -> list[Set]:
    """What the spans of a kind cover, for each of `numbers`."""
    chosen = np.flatnonzero(kind)
    chosen = chosen[np.argsort(step[chosen], kind="stable")]
    low, high = (np.searchsorted(step[chosen], numbers, side=side).tolist() for side in ("left", "right"))
    parts = (chosen[first:last] for first, last in zip(low, high, strict=True))
    return [intervals.union(start[rows_], end[rows_]) for rows_ in parts]


def _sums(comm: Set, compute: Set) -> tuple[float, float, float, float]:
    both = intervals.total(intervals.intersection(comm, compute))
    whole = intervals.total(comm)
    return whole * _MS, intervals.total(compute) * _MS, both * _MS, (whole - both) * _MS


def operators(host: Spans, kinds: Any, calls: Iterable[int]) -> Bools:
    """Computation on a CPU: operators but those `calls` (rows) that enqueue a collective, on threads that run none."""
    busy = np.unique(host.where[kinds == SpanKind.comm])
    computing: Bools = (kinds == SpanKind.cpu_op) & ~np.isin(host.where, busy)
    computing[list(calls)] = False
    return computing
