# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which operation a Work that the program may wait for belongs to; bounded in number and age."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent.clock import now

if TYPE_CHECKING:
    from dtscope_jupyter.agent.operation import Operation

MOST = 1024
PATIENCE_NS = 60 * 10**9


class Works:
    """By the identity of the Work, which is not kept alive; in the order in which they were issued."""

    def __init__(self) -> None:
        """None is known yet."""
        self._operations: dict[int, Operation] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._operations)

    def add(self, work: Any, operation: Operation) -> None:
        """The call returned `work`; those of which nobody asked for long are forgotten."""
        operations = self._operations
        operations.pop(id(work), None)  # an earlier one that lay at the same address
        operations[id(work)] = operation
        while len(operations) > MOST or operation.enqueue - operations[next(iter(operations))].enqueue > PATIENCE_NS:
            del operations[next(iter(operations))]

    def pop(self, work: Any) -> Operation | None:
        """The operation of a Work that is waited for now, or will never be waited for in Python."""
        return self._operations.pop(id(work), None)


def follow(operation: Operation, work: Any) -> None:
    """Its end, by the runtime's own callback; where that has none, Work.wait tells."""

    def done(future: Any) -> None:
        end = now()
        try:
            future.value()
        except RuntimeError:  # a peer is gone: it never ended
            operation.raised = True
            return
        operation.end = operation.end or end

    try:
        work.get_future().then(done)
    except RuntimeError:
        operation.source = "host"
