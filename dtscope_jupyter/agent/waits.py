# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The intervals in which the training thread, or a stream, waits for collectives: noted as they end, made rows by the writing thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dtscope_jupyter.agent.clock import OFFSET_NS
from dtscope_jupyter.agent.progress import HELD

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.operation import Operation
    from dtscope_jupyter.agent.overlap import Overlap

_MOST = 16_384


class Waits:
    """Bounded; what makes place for newer waits is counted."""

    def __init__(self, agent: Agent, overlap: Overlap) -> None:
        """Nobody waits yet."""
        self._recorder = agent.recorder
        self._progress = agent.progress
        self._overlap = overlap
        self._over: deque[tuple[int, int, int, Operation]] = deque(maxlen=_MOST)
        self._finals: deque[list[Operation]] = deque(maxlen=_MOST)

    def add(self, start: int, end: int, operation: Operation) -> None:
        """A wait for the operation is over."""
        if len(self._over) == _MOST:
            self._recorder.drop("host", 1)
        self._over.append((operation.step, start, end, operation))

    def finalised(self, operations: list[Operation]) -> None:
        """A backward waited in C++ for the last of these, DDP's buckets, before it returned."""
        self._finals.append(operations)

    def drain(self) -> None:
        """Rows of what is over; on the writing thread."""
        for _ in range(len(self._finals)):
            self._final(self._finals.popleft())
        for _ in range(len(self._over)):
            step, start, end, operation = self._over.popleft()
            self.row(step if step != HELD else self._progress.place(start), start, end, operation.name, operation.line)

    def _final(self, operations: list[Operation]) -> None:
        if any(operation.events is not None for operation in operations):
            return
        if not all(operation.end for operation in operations):
            self._finals.append(operations)
            return
        last = max(operations, key=lambda operation: operation.end)
        ready = max(operation.returned for operation in operations)
        if last.end > ready:
            self.add(ready, last.end, last)

    def row(self, step: int, start: int, end: int, name: str, line: str | None) -> None:
        """A row of `host`, and part of what the step's figures rest on."""
        self._overlap.blocks(step, start, end)
        self._recorder.add("host", (step, "collective_wait", start + OFFSET_NS, end + OFFSET_NS, None, name, line))
