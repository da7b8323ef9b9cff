# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What the host does instead of launching work: waits for the data loader, garbage collection, saving."""

from __future__ import annotations

import gc
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader

from dtscope_jupyter.agent import lines
from dtscope_jupyter.agent.clock import OFFSET_NS, now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.patches import Patches
from dtscope_jupyter.agent.progress import HELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.overlap import Overlap

_MOST = 65_536


class Host(Collector):
    """Intervals of the training thread."""

    name = "host"

    def __init__(self, agent: Agent, overlap: Overlap) -> None:
        """Hooks come with `start`."""
        super().__init__(agent)
        self._overlap = overlap
        self._patches = Patches()
        self._events: deque[tuple[int, str, int, int, int | None, str | None, str | None]] = deque(maxlen=_MOST)
        self._gc_start = 0

    def start(self) -> None:
        """Installs the hooks."""
        self._patches.wrap(dataloader._BaseDataLoaderIter, "__next__", self._input_wrapper)  # noqa: SLF001
        self._patches.wrap(torch, "save", self._save_wrapper)
        gc.callbacks.append(self._collects)

    def stop(self) -> None:
        """Takes the hooks off."""
        self._patches.undo()
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    def event(self, kind: str, start: int, end: int, count: int | None = None, detail: str | None = None, line: str | None = None) -> None:
        """One interval, by the monotonic clock in ns."""
        if len(self._events) == _MOST:
            self.agent.recorder.drop("host", 1)
        self._events.append((self.agent.progress.step, kind, start, end, count, detail, line))

    def _input_wrapper(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def __next__(loader: Any) -> Any:  # noqa: N807
            start = now()
            try:
                return original(loader)
            finally:
                if self.on:
                    self.agent.progress.active(start)
                    self.event("input", start, now(), detail=type(loader).__name__)

        return __next__

    def _save_wrapper(self, original: Callable[..., None]) -> Callable[..., None]:
        def save(*args: Any, **kwargs: Any) -> None:
            start = now()
            original(*args, **kwargs)
            if self.on:
                self.event("checkpoint", start, now(), detail="torch.save", line=lines.caller()[0])

        return save

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_start = now()
        elif self._gc_start and self.agent.progress.started:
            self.event("gc", self._gc_start, now(), detail=f"generation {info['generation']}")
            self._gc_start = 0

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Writes what there is."""
        if self.agent.progress.holding and not final:
            return
        for _ in range(len(self._events)):
            step, kind, start, end, count, detail, line = self._events.popleft()
            step = step if step != HELD else self.agent.progress.place(start)
            if kind == "input":
                self._overlap.input.append((start, end))
            self.agent.recorder.add("host", (step, kind, start + OFFSET_NS, end + OFFSET_NS, count, detail, line))
