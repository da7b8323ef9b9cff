# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How long a CUDA device waits for DDP's buckets as a backward ends: two events a backward, in every step.

The first is recorded by a callback of the autograd engine that is queued before DDP's own, which makes the stream wait:
all gradients are computed. The second ends the last bucket. Buckets run one after the other on one stream.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.device_times import waits_block

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.device_times import DeviceTimes

_MOST = 1024


class FinalWait:
    """Marks on the training thread, resolves on the writing thread; `step` is the last that was marked."""

    def __init__(self, agent: Agent, times: DeviceTimes) -> None:
        """Touches no device."""
        self._agent = agent
        self._times = times
        self._work: Any = None
        self._queued = False
        self._on = not waits_block()
        self.step = -1
        self._marks: deque[tuple[int, Any, int, Any, Any]] = deque(maxlen=_MOST)

    def backward_begins(self) -> None:
        """No bucket is under way."""
        self._work, self._queued = None, False

    def bucket(self, work: Any) -> None:
        """DDP has issued another bucket, within a backward."""
        if not self._on or not isinstance(work, Work):
            return
        self._work = work
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._computed)  # noqa: SLF001

    def _computed(self) -> None:
        try:
            work, self._work, self._queued = self._work, None, False
            if work is not None and not torch.cuda.is_current_stream_capturing():
                computed, at = self._times.record(), now()
                self.step = self._agent.progress.step
                self._marks.append((self.step, computed, at, self._times.end_of(work), work))
        except Exception as error:  # noqa: BLE001 # training goes on without us
            self._on = False
            self._agent.fail("buckets", error)

    @property
    def waiting(self) -> tuple[int, int] | None:
        """Step of the oldest wait that is not over, and when the host asked for it."""
        return (self._marks[0][0], self._marks[0][2]) if self._marks else None

    def settled(self, step: int) -> bool:
        """Whether the waits of all steps up to this one are known."""
        return not self._marks or self._marks[0][0] > step

    def resolve(self) -> list[tuple[int, int, int]]:
        """(step, start, end) of waits that are over; those of no length are left out."""
        waits = []
        while self._marks and self._marks[0][1].query() and self._marks[0][3].query():
            step, computed, at, ended, _work = self._marks.popleft()
            self._times.clock.learn(computed, at)
            start, end = self._times.clock.time(computed), self._times.clock.time(ended)
            self._times.give_back([computed, ended])
            if end > start:
                waits.append((step, start, end))
        return waits
