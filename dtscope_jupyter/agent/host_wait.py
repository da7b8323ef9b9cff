# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How long a CPU's training thread waits for DDP's buckets as a backward ends, in steps in which nobody looks at these.

Between the last gradient and the return of the backward the thread issues what is left, waits, and copies what came. What of
that time it used no CPU it waited: time - CPU time of the thread. (As everywhere, a wait for a free CPU counts as a wait.)
"""

from __future__ import annotations

from collections import deque
from time import thread_time_ns
from typing import TYPE_CHECKING

from dtscope_jupyter.agent.clock import now

if TYPE_CHECKING:
    from dtscope_jupyter.agent.progress import Progress

_MOST = 4096


class HostWait:
    """Marks on the training thread, read on the writing thread; `step` is the last that was marked."""

    def __init__(self, progress: Progress) -> None:
        """No backward is under way."""
        self.step = -1
        self._progress = progress
        self._start = self._used = 0
        self._marks: deque[tuple[int, int, int]] = deque(maxlen=_MOST)

    def last_gradient(self) -> None:
        """The last bucket is about to be full; where several models train at once, the last call counts."""
        self._start, self._used = now(), thread_time_ns()

    def backward_ended(self) -> None:
        """DDP has waited for all buckets."""
        start, self._start = self._start, 0
        if not start:
            return
        waited = now() - start - (thread_time_ns() - self._used)
        self.step = self._progress.step
        if waited > 0:
            self._marks.append((self.step, start, start + waited))

    def resolve(self) -> list[tuple[int, int, int]]:
        """(step, start, end) of the waits since the last call."""
        return [self._marks.popleft() for _ in range(len(self._marks))]
