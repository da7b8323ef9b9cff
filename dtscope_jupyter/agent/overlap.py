# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Comm, compute, overlap and exposed time of a step, from what the hooks saw; definitions as in the analysis.

comm = a collective in flight; compute = the training thread (device: its compute stream) not blocked in a
collective or its wait; overlap = both; exposed = comm without compute. Means what `intervals` means; steps with few
intervals, which is most, are reckoned in plain Python, as numpy's calls cost more than they save there.

A device runs after its host, by as much as a step: its intervals belong to the step that issued them, whenever they were.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import numpy as np

from dtscope_jupyter import intervals

_KEPT = 20_000
_FEW = 64
_STEPS = 1024
Spans: TypeAlias = deque[tuple[int, int]]
Pairs: TypeAlias = list[tuple[int, int]]


class Overlap:
    """Intervals by the monotonic clock; filled and read on the writing thread."""

    def __init__(self) -> None:
        """No interval yet."""
        self.comm: Spans = deque(maxlen=_KEPT)
        self.blocked: Spans = deque(maxlen=_KEPT)
        self.input: Spans = deque(maxlen=_KEPT)
        self.oldest_open = 0
        self.by_step = False
        self._issued: dict[int, tuple[Pairs, Pairs]] = {}

    def communicates(self, step: int, start: int, end: int) -> None:
        """A collective that `step` issued was in flight."""
        (self._of(step)[0] if self.by_step else self.comm).append((start, end))

    def blocks(self, step: int, start: int, end: int) -> None:
        """Something in `step` waited for a collective."""
        (self._of(step)[1] if self.by_step else self.blocked).append((start, end))

    def _of(self, step: int) -> tuple[Pairs, Pairs]:
        if step not in self._issued and len(self._issued) >= _STEPS:
            del self._issued[next(iter(self._issued))]
        return self._issued.setdefault(step, ([], []))

    def settled(self, end: int) -> bool:
        """Whether no collective issued before `end` is in flight."""
        return not 0 < self.oldest_open < end

    def of(self, start: int, end: int, step: int = -1) -> tuple[float, float, float, float, float]:
        """compute, comm, overlap, exposed and input of a step, in ms; forgets what lies before it."""
        comm, blocked = _within(self.comm, start, end), _within(self.blocked, start, end)
        if self._issued and step in self._issued:
            for pairs, issued in zip((comm, blocked), self._issued.pop(step), strict=True):
                pairs.extend(issued)
        in_comm, in_blocked, exposed = lengths(comm, blocked) if len(comm) > 1 or comm != blocked else _once(comm)
        waited = lengths(_within(self.input, start, end), [])[0] / 1e6 if self.input else 0.0
        compute = end - start - in_blocked
        return compute / 1e6, in_comm / 1e6, (in_comm - exposed) / 1e6, exposed / 1e6, waited


def _once(pairs: Pairs) -> tuple[int, int, int]:
    """`lengths` of one interval, or none, that is in both: a step of which only the wait was seen."""
    length = pairs[0][1] - pairs[0][0] if pairs else 0
    return length, length, length


def lengths(a: Pairs, b: Pairs) -> tuple[int, int, int]:
    """Length of the union of each list of intervals, and of what both cover."""
    if len(a) + len(b) > _FEW:
        return _many(a, b)
    first, second = _union(a), _union(b)
    return _total(first), _total(second), _common(first, second)


def _many(a: Pairs, b: Pairs) -> tuple[int, int, int]:
    first, second = (_set(pairs) for pairs in (a, b))
    return intervals.total(first), intervals.total(second), intervals.total(intervals.intersection(first, second))


def _set(pairs: Pairs) -> intervals.Set:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return intervals.union(table[:, 0], table[:, 1])


def _union(pairs: Pairs) -> Pairs:
    merged: Pairs = []
    for start, end in sorted(pairs):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        elif end > start:
            merged.append((start, end))
    return merged


def _total(merged: Pairs) -> int:
    return sum(end - start for start, end in merged)


def _common(a: Pairs, b: Pairs) -> int:
    return sum(max(0, min(end, other_end) - max(start, other)) for start, end in a for other, other_end in b)


def _within(spans: Spans, start: int, end: int) -> Pairs:
    while spans and spans[0][1] <= start:
        spans.popleft()
    if not spans:
        return []
    return [(max(first, start), min(last, end)) for first, last in spans if first < end and last > start]
