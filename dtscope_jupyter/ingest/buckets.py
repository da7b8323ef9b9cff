# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which of a trace's collectives are DDP's buckets: no trace says so, but where the host launches them does."""

from __future__ import annotations

import bisect
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.ingest.columns import Spans
    from dtscope_jupyter.intervals import Ints

_FORWARD = "DistributedDataParallel.forward"
_READY = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def number(told: Sequence[dict[str, Any]], host: Spans, words: list[str]) -> None:
    """Sets `bucket` in the rows that are buckets of DDP.

    They are the all_reduces that autograd launches as it accumulates a gradient, in a trace with DDP's forward. The reducer launches
    them in the order of their index, so that the n-th since the last forward has index n, from 0, each process group
    counted apart. A communication hook that reduces a bucket in several parts has them counted one by one.
    """
    forwards = np.sort(host.start[_named(host, words, _FORWARD)])
    if not len(forwards):
        return
    ready = _Inside(host, _named(host, words, _READY))
    candidates = (row for row in told if row["operation"] == "all_reduce" and row["enqueue_ns"] is not None and row["thread"] is not None)
    count: Counter[tuple[int, str]] = Counter()
    for row in sorted(candidates, key=lambda row: row["enqueue_ns"]):
        if ready.has(row["thread"], row["enqueue_ns"]):
            key = int(np.searchsorted(forwards, row["enqueue_ns"])), row["process_group"]
            row["bucket"] = count[key]
            count[key] += 1


def _named(host: Spans, words: list[str], name: str) -> Ints:
    code = words.index(name) if name in words else -1
    return np.flatnonzero(host.name == code)


class _Inside:
    """Whether a thread was in one of some spans, of which none of a thread lies within another."""

    def __init__(self, host: Spans, rows: Ints) -> None:
        rows = rows[np.argsort(host.start[rows], kind="stable")]
        threads = {thread: rows[host.where[rows] == thread] for thread in np.unique(host.where[rows]).tolist()}
        self._starts = {thread: host.start[mine].tolist() for thread, mine in threads.items()}
        self._ends = {thread: host.end[mine].tolist() for thread, mine in threads.items()}

    def has(self, thread: int, time: int) -> bool:
        """At `time`, in ns since the trace's base."""
        place = bisect.bisect_right(self._starts.get(thread, []), time) - 1
        return place >= 0 and self._ends[thread][place] >= time
