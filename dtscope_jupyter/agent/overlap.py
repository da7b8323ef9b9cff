# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Comm, compute, overlap and exposed time of a step, from what the hooks saw; definitions as in the analysis.

comm = a collective in flight; compute = the training thread (device: its compute stream) not blocked in a
collective or its wait; overlap = both; exposed = comm without compute.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dtscope_jupyter import intervals

_KEPT = 20_000
Spans = deque[tuple[int, int]]


class Overlap:
    """Intervals by the monotonic clock; filled and read on the writing thread."""

    def __init__(self) -> None:
        """No interval yet."""
        self.comm: Spans = deque(maxlen=_KEPT)
        self.blocked: Spans = deque(maxlen=_KEPT)
        self.input: Spans = deque(maxlen=_KEPT)
        self.oldest_open = 0

    def settled(self, end: int) -> bool:
        """Whether no collective issued before `end` is in flight."""
        return not 0 < self.oldest_open < end

    def of(self, start: int, end: int) -> tuple[float, float, float, float, float]:
        """compute, comm, overlap, exposed and input of a step, in ms; forgets what lies before it."""
        comm, blocked, waits = (_within(spans, start, end) for spans in (self.comm, self.blocked, self.input))
        exposed = intervals.total(intervals.intersection(comm, blocked))
        in_comm = intervals.total(comm)
        compute = end - start - intervals.total(blocked)
        return compute / 1e6, in_comm / 1e6, (in_comm - exposed) / 1e6, exposed / 1e6, intervals.total(waits) / 1e6


def _within(spans: Spans, start: int, end: int) -> intervals.Set:
    while spans and spans[0][1] <= start:
        spans.popleft()
    inside = [(max(first, start), min(last, end)) for first, last in spans if first < end]
    pairs = np.array(inside, dtype=np.int64).reshape(-1, 2)
    return intervals.union(pairs[:, 0], pairs[:, 1])
