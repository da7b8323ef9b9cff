# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a live rank does on request; each takes the request and returns the reply without "ok"."""

from __future__ import annotations

import faulthandler
import itertools
import os
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent import flight_recorder, joining
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import started

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.agent.core import Agent

_MOST_STEPS = 100
_MOST_STEP = 2**53
_MOST_WATCHERS = 256


class Commands:
    """The commands of one rank."""

    def __init__(self, agent: Agent) -> None:
        """For the server."""
        self._agent = agent
        self._watchers: dict[str, tuple[Any, Any]] = {}
        self._known = {
            "status": self._status, "profile": self._profile, "stacks": self._stacks, "flight_recorder": self._flight_recorder,
            "attach": self._attach, "begin": self._begin, "detach": self._detach, "budget": self._budget,
        }  # fmt: skip

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one; DtscopeError for what is unknown or can't be done."""
        name = request.get("command")
        if name not in self._known:
            raise DtscopeError(f"unknown command {name!r}; choose from {', '.join(self._known)}")
        return self._known[name](request)

    def _status(self, _request: dict[str, Any]) -> dict[str, Any]:
        return self._agent.status() | {"watchers": len(self._watchers)}

    def _profile(self, request: dict[str, Any]) -> dict[str, Any]:
        steps = request.get("steps", 2)
        if not isinstance(steps, int) or not 1 <= steps <= _MOST_STEPS:
            raise DtscopeError(f"can't profile {steps!r} steps; give 1 to {_MOST_STEPS}")
        if self._agent.window is None:
            raise DtscopeError("this rank has no profiler; it records nothing yet, attach first")
        self._agent.window.request(steps)
        return {"steps": steps}

    def _stacks(self, _request: dict[str, Any]) -> dict[str, Any]:
        path = _numbered(self._agent.config.folder, "stacks", "txt")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            faulthandler.dump_traceback(descriptor, all_threads=True)
        finally:
            os.close(descriptor)
        return {"file": path.name}

    def _flight_recorder(self, request: dict[str, Any]) -> dict[str, Any]:
        path = _numbered(self._agent.config.folder, "flight_recorder", "json")
        return {"files": [written.name for written in flight_recorder.dump(path, stacks=bool(request.get("stacks", True)))]}

    def _attach(self, request: dict[str, Any]) -> dict[str, Any]:
        """`by` names who watches (id, and pid and start of its process); recording ends when the last of these detaches."""
        by = request.get("by")
        if isinstance(by, dict) and len(self._watchers) < _MOST_WATCHERS:
            self._watchers[str(by.get("id"))] = by.get("pid"), by.get("started")
        self._agent.start(joining.Joining(hold=request.get("hold") is True))
        found = {"recording": self._agent.recording, "hooks_ms": self._agent.hooks_ms}
        return found | {"sequence": joining.sequence(), "step": self._agent.progress.step}

    def _begin(self, request: dict[str, Any]) -> dict[str, Any]:
        after, first, joins = request.get("after"), request.get("first"), self._agent.progress.joining
        if not (isinstance(after, int) and isinstance(first, int) and 0 <= first < _MOST_STEP):
            raise DtscopeError(f"can't begin with step {first!r} after {after!r}; give whole numbers")
        if joins is not None:
            joins.told(after, first)
        return {"waits": joins is not None}

    def _detach(self, request: dict[str, Any]) -> dict[str, Any]:
        by = request.get("by")
        gone = {who for who, process in self._watchers.items() if not _lives(*process)}
        gone |= {str(by.get("id"))} if isinstance(by, dict) else set(self._watchers)
        for who in gone:
            self._watchers.pop(who, None)
        if not self._watchers:
            self._agent.stop()
        return {"recording": self._agent.recording, "hooks_ms": self._agent.hooks_ms}

    def _budget(self, request: dict[str, Any]) -> dict[str, Any]:
        value = request.get("value")
        if not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise DtscopeError(f"a budget of {value!r} is no share of step time; give more than 0, at most 1 (100%)")
        self._agent.cost.budget = float(value)
        return {"budget": float(value)}


def _lives(pid: Any, began: Any) -> bool:
    """Whether a watcher's process is still there; one that can't be told from here counts as if it were."""
    return not isinstance(pid, int) or not isinstance(began, int) or started(pid) == began


def _numbered(folder: Path, stem: str, suffix: str) -> Path:
    return next(path for n in itertools.count() if not (path := folder / f"{stem}-{n:03d}.{suffix}").exists())
