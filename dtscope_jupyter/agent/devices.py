# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Samples of devices, once a second on a thread of its own: the rank's process on a CPU host, NVML on a GPU host.

On a CPU host `utilization` is the process's CPU time over the time of the threads it may compute with (torch's
number), and network bytes are the host's, loopback included, from local rank 0 alone. On a GPU host local rank 0
samples all GPUs that the job sees, or each rank its own where each sees but one.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import torch

from dtscope_jupyter.agent.clock import OFFSET_NS, now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.nvml import Nvml

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent

PERIOD_S = 1.0
_FREQUENCY_NS = 30 * 10**9


class Devices(Collector):
    """The sampling thread."""

    name = "devices"

    def __init__(self, agent: Agent) -> None:
        """Nothing is opened yet."""
        super().__init__(agent)
        self._process = psutil.Process()
        self._nvml: Nvml | None = None
        self._asked = -_FREQUENCY_NS
        self._ended = threading.Event()
        self._last = (0.0, 0.0)
        self._network = (0.0, 0, 0)

    def start(self) -> None:
        """Starts the thread."""
        self._ended = threading.Event()
        threading.Thread(target=self._work, args=(self._ended,), name="dtscope-devices", daemon=True).start()

    def stop(self) -> None:
        """Ends it."""
        self._ended.set()

    def _work(self, ended: threading.Event) -> None:
        try:
            self._cpu()
            self._traffic()
            while not ended.wait(PERIOD_S):
                self._sample()
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)

    def _sample(self) -> None:
        if torch.cuda.is_initialized():
            self._nvml = self._nvml or Nvml(self.agent.config)
            for rank, row in self._nvml.rows(now() + OFFSET_NS):
                self.agent.recorder.add("devices", row, rank=rank)
        self.agent.recorder.add("devices", self._host_row())

    def _host_row(self) -> tuple[Any, ...]:
        received, sent = self._traffic() if self.agent.config.local_rank == 0 else (None, None)
        memory = psutil.virtual_memory()
        return (
            now() + OFFSET_NS, "cpu", None, self._cpu(), memory.percent, self._process.memory_info().rss,
            self._frequency(), None, None, None, None, None, received, sent, None,
        )  # fmt: skip

    def _frequency(self) -> float | None:
        """MHz, now and then and from local rank 0 alone: to tell it the kernel interrupts every CPU."""
        if self.agent.config.local_rank or now() - self._asked < _FREQUENCY_NS:
            return None
        self._asked = now()
        return getattr(psutil.cpu_freq(), "current", None) or None

    def _cpu(self) -> float:
        """Per cent of the rank's threads that were busy since the last call."""
        times = self._process.cpu_times()
        used, wall = times.user + times.system, time.monotonic()
        before, since = self._last
        self._last = used, wall
        threads = min(torch.get_num_threads(), len(os.sched_getaffinity(0)))
        return min(100.0 * (used - before) / max((wall - since) * threads, 1e-9), 100.0)

    def _traffic(self) -> tuple[float, float]:
        counters = psutil.net_io_counters()
        wall = time.monotonic()
        since, received, sent = self._network
        self._network = wall, counters.bytes_recv, counters.bytes_sent
        period = max(wall - since, 1e-9)
        return (counters.bytes_recv - received) / period, (counters.bytes_sent - sent) / period
