# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The agent of a rank: owns recorder and collectors, starts and stops them, and keeps training out of their trouble."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from dtscope_jupyter import __version__, rundir
from dtscope_jupyter.agent import clock, groups, switching
from dtscope_jupyter.agent.cost import Cost
from dtscope_jupyter.agent.progress import Progress
from dtscope_jupyter.agent.recorder import Recorder
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import started

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.collector import Collector
    from dtscope_jupyter.agent.config import Config
    from dtscope_jupyter.agent.discovery import Discovery
    from dtscope_jupyter.agent.gradients import Gradients
    from dtscope_jupyter.agent.host import Host
    from dtscope_jupyter.agent.joining import Joining
    from dtscope_jupyter.agent.window import Window

_log = logging.getLogger(__name__)


class Agent:
    """What runs inside a rank; made by `arm`."""

    def __init__(self, config: Config) -> None:
        """Makes rank.json and the recorder; hooks come with `start`."""
        self.config = config
        self.progress = Progress()
        self.recorder = Recorder(config.folder, config.rank, config.disk)
        self.recorder.on_failure = lambda drain, error: self.fail(getattr(getattr(drain, "__self__", None), "name", "recorder"), error)
        self.cost = Cost(self.recorder, config.budget)
        self.window: Window | None = None
        self.host: Host | None = None
        self.gradients: Gradients | None = None
        self.collectors: dict[str, Collector] = {}
        self.discovery: Discovery | None = None
        self.drains: list[Callable[[bool], None]] = []
        self.recording = False
        self.hooks_ms = 0.0
        self.finished = False
        self._lock = threading.RLock()
        self._at_finish: list[Callable[[], None]] = []
        self.identity: dict[str, Any] = {
            "rank": config.rank, "world_size": config.world_size, "local_rank": config.local_rank,
            "pid": os.getpid(), "started": started(os.getpid()), "host": socket.gethostname(), "boot_id": clock.boot_id(),
            "python": sys.version.split()[0], "torch": torch.__version__, "dtscope_jupyter": __version__,
            "armed_ns": clock.now() + clock.OFFSET_NS, "config": config.to_json(),
        }  # fmt: skip
        self.write_identity()

    def write_identity(self) -> None:
        """rank.json; its modification time is the rank's heartbeat while it lives."""
        backend, device = _backend()
        self.identity |= {"backend": backend, "device": device}
        with contextlib.suppress(OSError):
            rundir.write_json(self.config.folder / "rank.json", self.identity)

    def start(self, joins: Joining | None = None) -> None:
        """Installs every collector that was asked for and starts to write; idempotent. `joins`: in the midst of training."""
        with self._lock:
            if self.recording or self.finished:
                return
            self.recording = True
            self.progress.begin_anew(joins)
            self.cost.begin_anew(self.progress.step)
            self.recorder.add("clocks", clock.row())
            self._switch(on=True)
            for drain in self.drains:
                self.recorder.add_source(drain)
            self.recorder.start()

    def stop(self) -> None:
        """Takes the hooks off; what was recorded stays, and `start` may follow."""
        with self._lock:
            if not self.recording:
                return
            if self.window is not None:
                self._guard("spans", self.window.close)
            self.recording = False
            self._switch(on=False)
            for name, collector in self.collectors.items():
                self._guard(name, collector.settle)
            self.recorder.flush(final=True)
            for drain in self.drains:
                self.recorder.remove_source(drain)

    def finish(self) -> None:
        """Closes the open step, writes the rest and closes the files; idempotent."""
        with self._lock:
            if self.finished:
                return
            self.finished = True
            closing = (lambda: self.progress.finish(clock.now()), self.stop, *self._at_finish, self.recorder.close)
            for close in closing:
                self._guard("finish", close)
        atexit.unregister(self.finish)

    def forget(self) -> None:
        """In a child made by fork: nothing here is its own."""
        self.finished = True
        self.recording = False
        for collector in self.collectors.values():
            collector.on = False
        atexit.unregister(self.finish)

    def log(self, scalars: dict[str, float]) -> None:
        """Rows of kind scalar in `notes`, while it records."""
        if not self.recording:
            return
        step = self.progress.scalar_step
        for name, value in scalars.items():
            self.recorder.note("scalar", name, _number(name, value), step=step)

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """A model and an optimizer named by the user."""
        assert self.discovery is not None
        self.discovery.named(model, optimizer)

    def host_event(self, kind: str, start: int, end: int, count: int, detail: str) -> None:
        """An interval of the host, where these are collected."""
        if self.host is not None:
            self.host.event(kind, start, end, count, detail)

    def status(self) -> dict[str, Any]:
        """For `control`: who this is and what it does."""
        return {
            "rank": self.config.rank, "pid": os.getpid(), "step": self.progress.step, "phase": self.progress.phase,
            "recording": self.recording, "collectors": {name: collector.on for name, collector in self.collectors.items()},
            "budget": self.cost.budget, "cost_ratio": self.cost.ratio, "writer_s": self.recorder.thread_s,
            "bytes": self.recorder.bytes_written,
        }  # fmt: skip

    def at_finish(self, close: Callable[[], None]) -> None:
        """`close` is called by `finish`, before the files are closed."""
        self._at_finish.append(close)

    def fail(self, name: str, error: BaseException) -> None:
        """A collector is in trouble: it goes off, says so in `notes`, and training goes on."""
        collector = self.collectors.get(name)
        if collector is not None and not collector.on:
            return
        if collector is not None:
            collector.on = False
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        _log.warning("dtscope: collector %s switched itself off (training goes on): %s", name, reason)
        _log.debug("dtscope: collector %s failed here", name, exc_info=error)
        self.recorder.note("collector", name, text=f"switched itself off: {reason}")
        for leave in () if collector is None else (collector.stop, collector.settle):
            try:
                leave()
            except Exception:  # noqa: BLE001 # it is in trouble already, and off
                _log.debug("dtscope: collector %s could not be stopped in order", name, exc_info=True)

    def _switch(self, *, on: bool) -> None:
        """Hooks in, or out; `hooks_ms` tells how long that took."""
        begin = clock.now()
        with switching.short:  # the training thread keeps the interpreter's lock for so long where we had to let it go
            for name, collector in self.collectors.items():
                collector.on = on
                self._guard(name, collector.start if on else collector.stop)
        self.hooks_ms = (clock.now() - begin) / 1e6

    def _guard(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            self.fail(name, error)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise DtscopeError(f"log({name}=...): {error}; log one number, such as {name}=loss.item()") from error


def _backend() -> tuple[str | None, str]:
    dist = torch.distributed
    backend = groups.backend(dist.group.WORLD) if dist.is_available() and dist.is_initialized() else None
    return backend, "cuda" if torch.cuda.is_initialized() else "cpu"
