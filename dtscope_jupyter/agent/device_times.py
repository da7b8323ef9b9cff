# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Start and end of collectives on a CUDA device: events from a pool, resolved by query, never by synchronising.

An asynchronous operation runs on a stream of the runtime that first waits for the caller's: it starts when the
caller's stream has got there and the group's previous operation has ended. Its end is an event recorded in a
callback of its future, which torch runs on a stream that waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.device_clock import DeviceClock

if TYPE_CHECKING:
    from dtscope_jupyter.agent.operation import Operation

_MOST = 16_384


class Marks:
    """The events of one operation."""

    __slots__ = ("begin", "begin_host", "end", "wait")

    def __init__(self, begin: Any, begin_host: int) -> None:
        """`begin` is recorded."""
        self.begin = begin
        self.begin_host = begin_host
        self.end: Any = None
        self.wait: tuple[Any, Any] | None = None

    @property
    def events(self) -> list[Any]:
        """All that are recorded."""
        return [event for event in (self.begin, self.end, *(self.wait or ())) if event is not None]


class DeviceTimes:
    """Marks operations on the training thread, resolves them on the writing thread."""

    def __init__(self) -> None:
        """Touches no device."""
        self._clock = DeviceClock()
        self._pool: deque[Any] = deque(maxlen=4096)
        self._open: deque[Operation] = deque(maxlen=_MOST)

    def begin(self, operation: Operation) -> None:
        """Marks the caller's stream, just before the call; nothing while a graph is captured."""
        if torch.cuda.is_current_stream_capturing():
            operation.failed = True
            return
        operation.events = Marks(self._record(), now())

    def issued(self, operation: Operation, work: Any) -> None:
        """Arranges for the end to be marked."""
        marks = operation.events
        if work is None:
            marks.end = self._record()
            marks.wait = (marks.begin, marks.end)
        elif operation.asynchronous:
            self._follow(marks, work)
        self._open.append(operation)

    def wait_begins(self, operation: Operation) -> None:
        """The caller's stream is about to wait for it."""
        operation.events.wait = (self._record(), None)

    def wait_ended(self, operation: Operation) -> None:
        """The caller's stream has been told to wait for it."""
        marks = operation.events
        after = self._record()
        marks.wait = ((marks.wait[0] if operation.asynchronous else marks.begin), after)
        marks.end = marks.end or after

    def resolve(self) -> list[tuple[int, int, Operation]]:
        """Fills start and end of what the device has done; returns the intervals in which a stream waited."""
        waits: list[tuple[int, int, Operation]] = []
        later = []
        for _ in range(len(self._open)):
            operation = self._open.popleft()
            marks = operation.events
            if marks.end is None or not all(event.query() for event in marks.events):
                later.append(operation)
                continue
            waits += self._resolve(operation, marks)
        self._open.extendleft(reversed(later))
        return waits

    def _resolve(self, operation: Operation, marks: Marks) -> list[tuple[int, int, Operation]]:
        self._clock.learn(marks.begin, marks.begin_host)
        begin, end = self._clock.time(marks.begin), self._clock.time(marks.end)
        group = operation.group
        operation.returned = begin
        operation.start = min(max(begin, group.last_end or 0), end)
        operation.end = group.last_end = end
        if marks.wait is None:
            self._give_back([marks.begin, marks.end])
            return []
        wait = (self._clock.time(marks.wait[0]), self._clock.time(marks.wait[1]), operation)
        self._give_back(list({id(event): event for event in marks.events}.values()))
        return [wait]

    def _follow(self, marks: Marks, work: Any) -> None:
        def done(_future: Any) -> None:
            marks.end = self._record()

        if hasattr(work, "get_future"):
            work.get_future().then(done)

    def _record(self) -> Any:
        try:
            event = self._pool.popleft()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _give_back(self, events: list[Any]) -> None:
        self._pool.extend(event for event in events if event is not self._clock.base)
