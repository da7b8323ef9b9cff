# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Profiler windows: torch.profiler over a few whole steps, on request or, with `spans` collected, as the budget allows.

The trace lies in the rank folder as trace-NNNNNN.json.gz, named by its first step. Every step that it slowed is
marked `disturbed`: those inside, the two around, in which it starts up and gathers, and those beside the writing of its file.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.collector import Collector

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.steps import Steps

_TEARDOWN = "TEARDOWN_CUPTI"
"""Tells Kineto to let CUPTI go as a window ends; else every later launch stays slower."""
_PATIENCE_NS = 1_500_000_000
_FIRST_STEP = 10
_SAMPLED_STEPS = 2
_SLOWDOWN = 0.6
"""A profiled step takes up to this share longer (measured on the CPU: 1.42 to 1.58 of a step)."""


class Window(Collector):
    """Starts and stops at step boundaries, on the training thread; the file is written by a thread of its own."""

    name = "spans"

    def __init__(self, agent: Agent, steps: Steps, *, sampled: bool) -> None:
        """`sampled`: also without being asked."""
        super().__init__(agent)
        self._steps = steps
        self._sampled = sampled
        self._wanted = 0
        self._teardown: str | None = None
        self._profiler: Any = None
        self._thread = 0
        self._first = 0
        self._left = 0
        self._next_ns = 0
        self._cost_ns = 0
        self._writers: list[threading.Thread] = []
        agent.progress.steady.before_enter.append(self._is_idle)

    def request(self, steps: int) -> None:
        """A window over the next `steps` whole steps."""
        self._wanted = steps
        self.agent.progress.steady.expire()

    def _is_idle(self) -> bool:
        """Whether no boundary needs to be seen."""
        return not (self.on and (self._sampled or self._wanted or self._writers)) and self._profiler is None

    def close(self) -> None:
        """Before the hooks come off: has an open window end with the step under way, as only the thread that began it can end it."""
        self._wanted = 0
        if self._profiler is None or threading.get_ident() == self._thread:
            return
        self._left = 1
        deadline = now() + _PATIENCE_NS
        while self._profiler is not None and now() < deadline:
            time.sleep(0.002)

    def settle(self) -> None:
        """Ends a window that this thread began, and waits for files; one that is stuck in a step ends when steps are seen again."""
        if self._profiler is not None and threading.get_ident() == self._thread:
            self._end(self.agent.progress.step)
        for writer in self._writers:
            writer.join(timeout=10)
        self._writers.clear()

    def boundary(self, closed: int) -> None:
        """Step `closed` has just ended."""
        if not self.on:
            return
        self._writers = [writer for writer in self._writers if writer.is_alive()]
        if self._writers:
            self._steps.disturbed.add(closed + 1)
        try:
            if self._profiler is not None:
                self._left -= 1
                if self._left == 0:
                    self._end(closed)
            elif self._wanted or self._is_time(closed):
                self._begin(closed + 1, self._wanted or _SAMPLED_STEPS)
        except Exception as error:  # noqa: BLE001
            self._profiler = None
            self.agent.fail(self.name, error)

    def _is_time(self, closed: int) -> bool:
        return self._sampled and closed >= _FIRST_STEP and now() >= self._next_ns

    def _begin(self, first: int, steps: int) -> None:
        self._wanted = 0
        if torch._C._autograd._profiler_enabled():  # noqa: SLF001
            self.agent.recorder.note("window", "profiler", text="no window: the program runs a profiler of its own", step=first)
            self._next_ns = now() + 10 * 10**9
            return
        start, self._thread = now(), threading.get_ident()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities)
        self._teardown = os.environ.get(_TEARDOWN)
        os.environ[_TEARDOWN] = "1"
        self._profiler.start()
        self._first, self._left = first, steps
        self._steps.disturbed |= set(range(first, first + steps + 1))
        self._cost_ns = now() - start

    def _end(self, closed: int) -> None:
        """`close` waits on another thread for there to be no profiler: by then its file has a writer."""
        start, profiler = now(), self._profiler
        try:
            profiler.stop()
            if self._teardown is None:
                os.environ.pop(_TEARDOWN, None)
            else:
                os.environ[_TEARDOWN] = self._teardown
            self._cost_ns += now() - start
            profiled = max(closed - self._first + 1, 1)
            step_ns = self.agent.cost.step_ns
            cost = self._cost_ns + _SLOWDOWN * profiled * step_ns
            self._next_ns = now() + int(cost / self.agent.cost.budget)
            writer = threading.Thread(target=self._write, args=(profiler, self._first, profiled), name="dtscope-trace", daemon=True)
            self._writers.append(writer)
            writer.start()
        finally:
            self._profiler = None

    def _write(self, profiler: Any, first: int, steps: int) -> None:
        path = self.agent.config.folder / f"trace-{first:06d}.json.gz"
        hidden = path.with_name(f".{path.name}")
        try:
            profiler.export_chrome_trace(str(hidden))
            hidden.chmod(0o600)
            hidden.replace(path)
        except (OSError, RuntimeError) as error:
            self.agent.recorder.note("warning", "window", text=f"{path.name} was not written: {error}", step=first)
        else:
            self.agent.recorder.note("window", path.name, steps, f"profiler window of {steps} steps", step=first)
