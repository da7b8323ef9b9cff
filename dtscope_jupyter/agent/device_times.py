# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Start and end of collectives on a CUDA device: events from a pool, resolved by query, never by synchronising.

An asynchronous operation runs on a stream of the runtime that first waits for the caller's: it starts when the
caller's stream has got there and the group's previous operation has ended. Its end is an event on a stream of ours that
waits for it; tensors and Work are kept until that event is reached, since to wait lets the runtime forget them.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.device_clock import DeviceClock

if TYPE_CHECKING:
    from dtscope_jupyter.agent.operation import Operation

_MOST = 16_384
_SHORT_NS = 5_000
_wait = Work.wait
"""As torch has it, before anything is put in its place."""


def waits_block() -> bool:
    """Whether to wait for a Work stops the host, as asked for by the environment."""
    return any(os.environ.get(name, "0") == "1" for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"))


class Marks:
    """The events of one operation."""

    __slots__ = ("begin", "begin_host", "end", "kept", "wait")

    def __init__(self, begin: Any, begin_host: int) -> None:
        """`begin` is recorded."""
        self.begin = begin
        self.begin_host = begin_host
        self.end: Any = None
        self.wait: tuple[Any, Any] | None = None
        self.kept: Any = None

    @property
    def events(self) -> list[Any]:
        """All that are recorded."""
        return [event for event in (self.begin, self.end, *(self.wait or ())) if event is not None]


class DeviceTimes:
    """Marks operations on the training thread, resolves them on the writing thread."""

    def __init__(self) -> None:
        """Touches no device."""
        self.clock = DeviceClock()
        self.main: int | None = None
        self._pool: deque[Any] = deque()
        self._open: deque[Operation] = deque(maxlen=_MOST)
        self._side: dict[int, Any] = {}
        self._blocks = waits_block()

    def backward_begins(self) -> None:
        """The stream that computes is the one from which backwards are called; the default one is 0."""
        self.main = torch.cuda.current_stream().cuda_stream

    def begin(self, operation: Operation) -> None:
        """Marks the caller's stream, just before the call; nothing while a graph is captured."""
        if torch.cuda.is_current_stream_capturing():
            operation.failed = True
            return
        operation.events = Marks(self.record(), now())

    def issued(self, operation: Operation, work: Any, kept: Any = None) -> None:
        """Arranges for the end to be marked; `kept` are the operation's tensors."""
        marks = operation.events
        if work is None:
            marks.end = self.record()
            marks.wait = (marks.begin, marks.end) if self._computes() else None
        elif operation.asynchronous and isinstance(work, Work) and not self._blocks:
            marks.kept = work, kept
            marks.end = self.end_of(work)
        self._open.append(operation)

    def end_of(self, work: Any) -> Any:
        """An event that is reached as the work has been done; whoever calls keeps work and tensors until then."""
        device = torch.cuda.current_device()
        side = self._side.get(device)
        if side is None:
            side = self._side[device] = torch.cuda.Stream()
        with torch.cuda.stream(side):
            _wait(work)
            return self.record()

    def wait_begins(self, operation: Operation) -> None:
        """The caller's stream is about to wait for it."""
        if operation.asynchronous and self._computes():
            operation.events.wait = (self.record(), None)

    def wait_ended(self, operation: Operation) -> None:
        """The caller's stream has been told to wait for it."""
        marks = operation.events
        after = self.record()
        if operation.asynchronous:
            marks.wait = (marks.wait[0], after) if marks.wait else None
        else:
            marks.wait = (marks.begin, after) if self._computes() else None
        marks.end = marks.end or after

    def _computes(self) -> bool:
        return self.main is None or torch.cuda.current_stream().cuda_stream == self.main

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
        marks.kept = None
        self.clock.learn(marks.begin, marks.begin_host)
        begin, end = self.clock.time(marks.begin), self.clock.time(marks.end)
        group = operation.group
        operation.returned = begin
        operation.start = min(max(begin, group.last_end or 0), end)
        operation.end = group.last_end = end
        waits = []
        if marks.wait is not None:
            start, over = (self.clock.time(event) for event in marks.wait)
            waits = [(start, over, operation)] if over - start > _SHORT_NS else []
        self.give_back(list({id(event): event for event in marks.events}.values()))
        return waits

    def record(self) -> Any:
        """An event on the current stream."""
        try:
            event = self._pool.popleft()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def give_back(self, events: list[Any]) -> None:
        """Events that have been read; none is freed here, for which the driver may let the writing thread wait (`readings`)."""
        former, self.clock.retired = self.clock.retired, []
        self._pool.extend(event for event in (*former, *events) if event is not self.clock.base)
