# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps like the one before: their hooks leave marks, and what these mean is reckoned on the writing thread.

Between two hooks a rank's caches go cold, so that a line of Python costs twenty times what it costs in a loop: all that
`Progress` and the collectors do at a step's hooks takes 0.3 ms there, a mark 4 us. After a regular step (one backward whose buckets
nobody looks at, then the only optimizer) the next ones, as many as `Cost` has no plans for, count as such until something else
happens; `leave` then puts `Progress` where it would be had it seen them.
"""

from __future__ import annotations

from threading import get_ident
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from dtscope_jupyter.agent import run_queue
from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.counted import Backward

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from dtscope_jupyter.agent.groups import Group
    from dtscope_jupyter.agent.host_wait import HostWait
    from dtscope_jupyter.agent.layout import Kind
    from dtscope_jupyter.agent.progress import Progress

OFF, BETWEEN, BACKWARD, AFTER, OPTIMIZER = range(-1, 4)
_LEAST = 2


class Marks(NamedTuple):
    """What a step left; times by the monotonic clock in ns, `queue` the two readings of the run queue around it."""

    start: int
    end: int
    backward_start: int
    backward_end: int
    optimizer_start: int
    cpu_ns: int
    queue: tuple[bytes | None, bytes | None]
    counted: bool
    waited: bool
    squares: list[torch.Tensor]

    @property
    def delay_ns(self) -> int | None:
        """How long the thread was ready while something else had the CPU."""
        return run_queue.between(*self.queue)


_made = tuple.__new__
"""A named tuple without a call of Python's, which takes 8 us there."""


class Expected(NamedTuple):
    """The buckets of a DDP model that a backward will issue; `number` tells the runtime's last."""

    group: Group
    number: Callable[[], int]
    kinds: list[Kind]


class Steady:
    """`left` steps may still go by; called on the training thread, but for `expire` and `stuck`."""

    __slots__ = (
        "_backward_end", "_backward_start", "_cpu", "_expected", "_first", "_fresh", "_last_end", "_next", "_norm_at", "_norm_every",
        "_optimizer", "_progress", "_queue", "_thread", "_told", "at", "before_enter", "ends", "host_wait", "left", "norm", "on_leave",
        "optimizer_start", "squares",
    )  # fmt: skip

    def __init__(self, progress: Progress) -> None:
        """Nothing repeats yet."""
        self._progress = progress
        self.at = OFF
        self.left = 0
        self.ends: list[int] = []
        self.before_enter: list[Callable[[], bool]] = []
        self.on_leave: list[Callable[[int], None]] = []
        self.host_wait: HostWait | None = None
        self.norm: Callable[[int], list[torch.Tensor]] = lambda _part: []
        self._optimizer: Callable[[], Any] = lambda: None
        self._expected: list[Expected] = []
        self._first: list[int] = []
        self.squares: list[torch.Tensor] = []
        self._queue: bytes | None = None
        self._fresh = self._next = self._told = 0
        self._backward_start = self._backward_end = self.optimizer_start = self._last_end = self._cpu = self._thread = 0
        self._norm_at = self._norm_every = 0

    @property
    def begun(self) -> bool:
        """Whether the step under way has begun to work."""
        return self.at > BETWEEN or (self.at == BETWEEN and self._fresh > 0)

    def enter(self, optimizer: Callable[[], Any], steps: int, norms: tuple[int, int], expected: list[Expected]) -> None:
        """The next `steps` are taken for such as the last one, which has just closed; `norms`: the first flat norm, and every how many."""
        progress = self._progress
        if steps < _LEAST or not all(ready() for ready in self.before_enter):
            return
        self._optimizer, self._expected, self.left = optimizer, expected, steps
        self._norm_at, self._norm_every = norms
        self._thread, self._cpu = progress.thread_cpu
        self._last_end, self._queue = progress.last_end, progress.queue.before
        self._fresh = self._next = self._told = 0
        self.squares = []
        self.ends = []
        self.at = BETWEEN if self._thread == get_ident() else OFF

    def expire(self) -> None:
        """Something is to be seen to: the next hook is the last that leaves a mark."""
        self.left = 0

    def drop(self) -> None:
        """Recording stops, or begins anew."""
        self.at = OFF

    def active(self, time_ns: int) -> None:
        """The program began to work on something."""
        if self.at == BETWEEN:
            self._fresh = self._fresh or time_ns
        elif self.at > BACKWARD:
            self._next = self._next or time_ns

    def backward_begins(self) -> bool:
        """Whether a mark is enough; so for the other three."""
        if self.at != BETWEEN or self.left <= 0 or get_ident() != self._thread:
            return self.leave()
        self._first = [number() for _, number, _ in self._expected]
        self._progress.phase = "backward"
        self._backward_start = now()
        self.at = BACKWARD
        return True

    def backward_ends(self) -> bool:
        """Under DDP the host has waited for all buckets."""
        if self.at != BACKWARD or self.left <= 0:
            return self.leave()
        self._backward_end = now()
        self._progress.phase = None
        self.at = AFTER
        if self.host_wait is not None:
            self.host_wait.backward_ended()
        if len(self.ends) == self._norm_at:
            self.squares += self.norm(0)
        return True

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> bool:
        """An outermost step of the optimizer."""
        if self.at != AFTER or self.left <= 0 or self._optimizer() is not optimizer or get_ident() != self._thread:
            return self.leave()
        if len(self.ends) == self._norm_at:
            self.squares += self.norm(1)
        self._progress.phase = "optimizer"
        self.optimizer_start = now()
        self.at = OPTIMIZER
        return True

    def optimizer_ends(self) -> bool:
        """The step ends; the last of them as ever, so that what is planned for the next one is seen to."""
        if self.at != OPTIMIZER or self.left < _LEAST:
            return self.leave()
        progress, start, end, cpu = self._progress, self._last_end, now(), thread_time_ns()
        queue = self._queue, progress.queue.read()
        waited = self.host_wait is not None and self.host_wait.step == progress.step
        times = start, end, self._backward_start, self._backward_end, self.optimizer_start
        used = max(cpu - self._cpu, 0)  # a thread may have the number of one that is gone
        marks = _made(Marks, (*times, used, queue, bool(self._expected), waited, self.squares))
        progress.closed.append((progress.step, marks))
        self._last_end, self._cpu, self._queue, self.squares = end, cpu, queue[1], []
        self._fresh = self._next = self._told = 0
        if len(self.ends) == self._norm_at:
            self._norm_at += self._norm_every
        self.ends.append(end)
        self.left -= 1
        progress.phase = None
        progress.step += 1
        self.at = BETWEEN
        return True

    def leave(self) -> bool:
        """Puts `Progress` where it would be by now; False, for a caller whose hook is to go on as ever."""
        at, self.at = self.at, OFF
        if at == OFF:
            return False
        progress = self._progress
        progress.resume(self._last_end, (self._thread, self._cpu), self._queue)
        if at > BETWEEN or self._fresh:
            progress.active(self._fresh or self._backward_start)
        if at > BETWEEN:
            progress.backward_begins(self._backward_start, reset=False, updated=False)
        if at > BACKWARD:
            progress.backward_ends(self._backward_end)
            if self._next:
                progress.active(self._next)
        progress.phase = "optimizer" if at == OPTIMIZER else progress.phase
        for call in self.on_leave:
            call(at)
        return False

    def backwards(self) -> list[Backward]:
        """What the backward under way issues, once a step."""
        if self._told:
            return []
        self._told, step = 1, self._progress.step
        pairs = zip(self._expected, self._first, strict=False)
        return [Backward(step, group, kinds, number, first, self._backward_start) for (group, number, kinds), first in pairs]

    def stuck(self, before_ns: int) -> list[Backward]:
        """As `backwards`, of one that began before a time and has not ended; these steps end with it. On the writing thread."""
        if self.at != BACKWARD or self._backward_start > before_ns:
            return []
        self.expire()
        return self.backwards()
