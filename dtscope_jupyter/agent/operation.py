# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One collective in flight, as the hooks keep it until it becomes a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent.clock import OFFSET_NS

if TYPE_CHECKING:
    from dtscope_jupyter.agent.groups import Group
    from dtscope_jupyter.agent.operations import Message


class Operation:
    """Times by the monotonic clock in ns; `start` and `end` are 0 until known."""

    __slots__ = (
        "announced", "asynchronous", "bucket", "bytes", "contiguous", "device", "dtype", "end", "enqueue", "events", "failed",
        "group", "line", "name", "peer", "phase", "raised", "returned", "seq", "shape", "source", "start", "step", "work",
    )  # fmt: skip

    def __init__(self, name: str, group: Group, message: Message, step: int, phase: str | None, enqueue: int) -> None:
        """About to be issued."""
        tensor = message.tensor
        self.name = name
        self.group = group
        self.step = step
        self.phase = phase
        self.enqueue = enqueue
        self.bytes = message.bytes
        self.peer = message.peer
        self.dtype = self.shape = self.contiguous = self.device = None
        if tensor is not None:
            self.dtype, self.shape, self.device = tensor.dtype, tensor.shape, tensor.device
            self.contiguous = tensor.is_contiguous() if not tensor.is_sparse else None
        self.bucket: int | None = None
        self.line: str | None = None
        self.seq: int | None = None
        self.start = enqueue
        self.end = self.returned = 0
        self.asynchronous = False
        self.announced = self.failed = self.raised = False
        self.events: Any = None
        self.work: Any = None
        self.source = "event"

    def row(self, step: int | None) -> tuple[Any, ...]:
        """Its row of `collectives`, without the rank."""
        group, done = self.group, self.end > 0
        state = "completed" if done else "scheduled"
        return (
            step, self.seq, group.name, group.size, self.name, self.bytes,
            str(self.dtype).removeprefix("torch.") if self.dtype is not None else None,
            str(list(self.shape)) if self.shape is not None else None,
            self.bucket, self.phase, self.enqueue + OFFSET_NS,
            self.start + OFFSET_NS if done else None, self.end + OFFSET_NS if done else None,
            state, self.asynchronous, self.contiguous, self.peer, None, self.line, self.source,
        )  # fmt: skip
