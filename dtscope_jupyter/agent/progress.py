# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which step it is: told from backwards, optimizer steps and, without either, from collectives.

A *segment* ends with an outermost optimizer step (or one that a GradScaler skipped); a step is one segment
or, with several optimizers, all up to the closing optimizer, which is the last one of the first cycle. While
that cycle is unknown, times are kept and `place` gives them their step later. Without any optimizer a step
ends where gradients were reset or parameters changed before the next backward: with its last backward or the last
collective after that, but not before the next batch is asked for. Without any backward either, a step begins where
a line of the program issues the same collective again.

The first step begins with the first batch, backward or collective after the last sign of setting up. Where recording begins in the
midst of training (joining.py), it begins with the next step.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtscope_jupyter.agent import joining
from dtscope_jupyter.agent.run_queue import RunQueue
from dtscope_jupyter.agent.steady import OFF, Marks, Steady

if TYPE_CHECKING:
    from collections.abc import Callable

HELD = -1
"""Stands for a step that is not yet known; see `Progress.place`."""
_HOLD_NS = 10 * 10**9
_MOST_BACKWARDS = 64
_MOST_BOUNDARIES = 1024
_SETUP = frozenset({"broadcast", "barrier", "scatter", "gather"})


@dataclass(slots=True)
class Segment:
    """Part of a step, or a whole one; times by the monotonic clock in ns, 0 for unknown."""

    start: int
    end: int = 0
    backward_start: int = 0
    backward_end: int = 0
    optimizer_start: int = 0
    optimizer_end: int = 0
    micro_batches: int = 0
    skipped: bool = False
    collectives: int = 0
    cpu_ns: int = 0
    delay_ns: int | None = None
    optimizers: list[int] = field(default_factory=list)

    @property
    def regular(self) -> bool:
        """Whether it was one backward, then one optimizer, and nothing else."""
        alone = (self.micro_batches, self.collectives, len(self.optimizers), self.skipped) == (1, 0, 1, False)
        return alone and 0 < self.backward_end <= self.optimizer_start

    def join(self, other: Segment) -> None:
        """Takes a later segment in."""
        self.end = other.end
        self.backward_start = self.backward_start or other.backward_start
        self.backward_end = other.backward_end or self.backward_end
        self.optimizer_start = self.optimizer_start or other.optimizer_start
        self.optimizer_end = other.optimizer_end or self.optimizer_end
        self.micro_batches += other.micro_batches
        self.skipped |= other.skipped
        self.collectives += other.collectives
        self.cpu_ns += other.cpu_ns
        self.delay_ns = None if self.delay_ns is None or other.delay_ns is None else self.delay_ns + other.delay_ns
        self.optimizers += other.optimizers


class Progress:
    """The state of one rank; called on the training thread, read from others."""

    def __init__(self) -> None:
        """Before the first step."""
        self.step = 0
        self.phase: str | None = None
        self.thread = threading.main_thread().ident
        self.before_close: list[Callable[[int], None]] = []
        self.on_join: list[Callable[[int], None]] = []
        self.closed: deque[tuple[int, Segment | Marks]] = deque()
        self.last: Segment | None = None
        self.steady = Steady(self)
        self.optimizers_alive = 0
        self.joining: joining.Joining | None = None
        self._closing = 0
        self._current: Segment | None = None
        self._parts: list[Segment] = []
        self._boundaries: list[int] = []
        self._first = 0
        self._fresh = 0
        self._next = 0
        self._last_end = 0
        self._last_call = 0
        self._early = 0
        self._cpu = (0, 0)
        self.queue = RunQueue()
        self._calls: set[tuple[str, str | None]] = set()
        self._backwards = 0

    @property
    def holding(self) -> bool:
        """Whether steps are not yet known."""
        return self.step == HELD

    @property
    def by_calls(self) -> bool:
        """Whether collectives tell where a step begins."""
        return not (self._backwards or self.optimizers_alive)

    @property
    def accumulates(self) -> bool:
        """Whether a backward that begins now may belong to the same step as the one before."""
        return self._current is not None and self._current.micro_batches > 0

    @property
    def started(self) -> bool:
        """Whether the first step has begun."""
        return self._current is not None or self._last_end > 0

    @property
    def scalar_step(self) -> int:
        """The step that a remark of the user belongs to: the last one until the next has begun to work."""
        if self.step == HELD:
            return 0
        before_all = self.step == self._first and not self.started
        begun = self._fresh or self.steady.begun
        return self.step if begun or before_all or self.joining is not None else self.step - 1

    @property
    def backward_end(self) -> int:
        """When the last backward of the open step ended; 0 where none did."""
        return self._current.backward_end if self._current is not None else 0

    @property
    def last_end(self) -> int:
        """When the last step ended; 0 before that."""
        return self._last_end

    @property
    def thread_cpu(self) -> tuple[int, int]:
        """The training thread, and its CPU time as the last step ended."""
        return self._cpu

    def may_repeat(self, optimizer: object) -> bool:
        """Whether the last step was a whole one of the only optimizer, and the next may be taken for one like it."""
        last = self.last
        known = self.joining is None and self.optimizers_alive == 1 and self._current is None and not self._parts
        return known and last is not None and last.regular and last.optimizers == [self._closing] == [id(optimizer)]

    def resume(self, end_ns: int, cpu: tuple[int, int], queue: bytes | None) -> None:
        """Steps went by unseen, the last until `end_ns`."""
        self._last_end, self._cpu, self.queue.before = end_ns, cpu, queue

    def place(self, time_ns: int) -> int:
        """The step of a time that was HELD."""
        return self._first + bisect_right(self._boundaries, time_ns)

    def begin_anew(self, joins: joining.Joining | None = None) -> None:
        """Recording begins, or goes on after it was stopped; `joins` where the program may be in the midst of a step."""
        self.steady.drop()
        self._resolve()
        self._current, self._parts, self.phase, self.joining = None, [], None, joins
        if joins is None:
            self._closing = 0
        self._fresh = self._next = self._last_end = self._early = 0

    def active(self, time_ns: int) -> None:
        """The program began to work on something: a batch, a forward."""
        if self.steady.at != OFF:
            self.steady.active(time_ns)
            return
        self._fresh = self._fresh or time_ns
        self._next = self._next or time_ns
        if self._current is None:
            self._may_start(time_ns)
            self._current = Segment(self._last_end or self._early)

    def backward_begins(self, time_ns: int, *, reset: bool, updated: bool) -> bool:
        """The outermost backward begins; `reset`, `updated`: gradients, parameters since the last. True where a step was closed."""
        closed = False
        current = self._current
        if current is not None and current.micro_batches and self._stale(current, reset=reset, updated=updated):
            current.skipped = self.optimizers_alive > 0
            self._close_segment(max(self._next or current.backward_end, self._last_call))
            closed = True
        self.active(time_ns)
        assert self._current is not None
        self._current.backward_start = self._current.backward_start or time_ns
        self.phase = "backward"
        return closed

    def backward_ends(self, time_ns: int) -> None:
        """The outermost backward has returned."""
        self.phase = None
        self._backwards += 1
        self._next = 0
        if self._current is not None:
            self._current.backward_end = time_ns
            self._current.micro_batches += 1

    def optimizer_ends(self, optimizer: int, start_ns: int, end_ns: int, *, skipped: bool = False) -> None:
        """An outermost optimizer step has returned, or was skipped."""
        self.phase = None
        self.active(start_ns)
        current = self._current
        assert current is not None
        current.optimizer_start, current.optimizer_end = start_ns, end_ns
        current.skipped |= skipped
        current.optimizers.append(optimizer)
        self._close_segment(end_ns)

    def collective(self, operation: str, line: str | None, time_ns: int) -> None:
        """A collective is about to be issued by the program; `operation` begins with its name and tells its size."""
        self.steady.leave()
        if operation.partition(" ")[0] in _SETUP:
            self.sets_up()
        else:
            self._may_start(time_ns)
        if self._current is not None:
            self._current.collectives += 1
        if self._backwards or self.optimizers_alive or operation.partition(" ")[0] in _SETUP or self.phase is not None:
            return
        key = (operation, line)
        if key in self._calls:
            self._calls.clear()
            self._close_segment(time_ns)
        self._calls.add(key)
        self.active(time_ns)
        assert self._current is not None
        self._current.collectives = self._current.collectives or 1

    def collective_over(self, time_ns: int) -> None:
        """The program goes on, having issued a collective or waited for one."""
        self._last_call = time_ns

    def sets_up(self, *, optimizer: bool = False) -> None:
        """The program sets something up: what came before the first step is no part of it.

        Collectives without a backward may have been taken for the first step's; a first `optimizer` tells that they were none.
        """
        if optimizer and self._current is not None and not (self._backwards or self._last_end):
            self._current, self._fresh, self._next = None, 0, 0
            self._calls.clear()
        if self._current is None:
            self._early = 0

    def _may_start(self, time_ns: int) -> None:
        """The first step begins here, unless it turns out that this was setting up."""
        if not self._early and not self.started:
            self._early = time_ns
            self._cpu_used()
            self.queue.since_last()

    def finish(self, time_ns: int) -> None:
        """Closes what is open, where it holds any work."""
        self.steady.leave()
        current = self._current
        if current is not None and (current.backward_start or (current.collectives and not self._backwards)):
            for call in self.before_close:
                call(time_ns)
            current.end = time_ns
            current.cpu_ns, current.delay_ns = self._cpu_used(), self.queue.since_last()
            self._parts.append(current)
        self._current = None
        self._resolve()
        self._close_parts()

    def _cpu_used(self) -> int:
        """CPU time of the training thread since the last call; 0 where that is not known."""
        thread, before = threading.get_ident(), self._cpu
        self._cpu = (thread, time.thread_time_ns())
        return max(self._cpu[1] - before[1], 0) if before[0] == thread else 0  # a thread may have the number of one that is gone

    def _stale(self, current: Segment, *, reset: bool, updated: bool) -> bool:
        if self.optimizers_alive:
            return reset
        return reset or updated or current.micro_batches >= _MOST_BACKWARDS

    def _close_segment(self, end_ns: int) -> None:
        segment = self._current
        self._current, self._fresh, self._last_end = None, 0, end_ns
        if segment is None:
            return
        for call in self.before_close:
            call(end_ns)
        segment.end = end_ns
        segment.cpu_ns, segment.delay_ns = self._cpu_used(), self.queue.since_last()
        if self.joining is not None:
            self._join(self.joining, segment)
            return
        self._parts.append(segment)
        if not self._closing:
            self._learn(segment)
        else:
            self._apply(segment)

    def _join(self, joins: joining.Joining, segment: Segment) -> None:
        """Leaves a segment out that was not seen from its beginning; its rows keep a number of their own."""
        if self._closing not in (0, *segment.optimizers[-1:]) and segment.optimizers:
            return
        first = joins.boundary(self.step, joining.sequence())
        if first is not None:
            self.joining, self._first, self.step = None, first, first
            self._boundaries.clear()
            for call in self.on_join:
                call(first)

    def _learn(self, segment: Segment) -> None:
        """Closes at once with one optimizer; else waits for the first that steps again."""
        if self.step != HELD and (self.optimizers_alive <= 1 or not segment.optimizers):
            self._closing = segment.optimizers[-1] if segment.optimizers else 0
            self._close_parts()
            return
        seen = [part.optimizers[-1] for part in self._parts if part.optimizers]
        if segment.optimizers and segment.optimizers[-1] in seen[:-1]:
            self._closing = seen[-2]
        elif self.step != HELD:
            self._first, self.step = self.step, HELD
            self._boundaries.clear()
        if self._closing or segment.end - self._parts[0].start > _HOLD_NS:
            self._resolve()

    def _resolve(self) -> None:
        """Gives the held segments their steps."""
        if self.step != HELD:
            return
        held, self._parts = self._parts, []
        self._closing = self._closing or (held[-1].optimizers or [0])[-1]
        self.step = self._first
        for segment in held:
            self._parts.append(segment)
            self._apply(segment)

    def _apply(self, segment: Segment) -> None:
        last = segment.optimizers[-1] if segment.optimizers else self._closing
        if last == self._closing or self.optimizers_alive <= 1:
            self._closing = last
            self._close_parts()
        elif any(last in part.optimizers for part in self._parts[:-1]):
            self._parts.pop()
            self._closing = self._parts[-1].optimizers[-1] if self._parts[-1].optimizers else last
            self._close_parts()
            self._parts.append(segment)
            if last == self._closing:
                self._close_parts()

    def _close_parts(self) -> None:
        if not self._parts:
            return
        whole = self._parts[0]
        for part in self._parts[1:]:
            whole.join(part)
        self._parts = []
        self._boundaries.append(whole.end)
        if len(self._boundaries) > _MOST_BOUNDARIES:
            del self._boundaries[0]
            self._first += 1
        self.closed.append((self.step, whole))
        self.last = whole
        self.step += 1
