# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers on their way from tensors to rows: read on the writing thread, from a device once their copy has ended."""

from __future__ import annotations

import torch


class Reading:
    """A vector of scalars."""

    __slots__ = ("_event", "_values")

    def __init__(self, values: torch.Tensor) -> None:
        """From a device it starts for the host now, and nothing waits."""
        self._event: torch.cuda.Event | None = None
        self._values = values
        if values.is_cuda:
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def done(self) -> bool:
        """Whether `values` can be had without waiting."""
        return self._event is None or bool(self._event.query())

    def values(self) -> list[float]:
        """The scalars."""
        return [float(value) for value in self._values.tolist()]


def norms(tensors: list[torch.Tensor]) -> torch.Tensor:
    """L2 norm of each as one vector, by one multi-tensor call."""
    with torch.no_grad():
        found = torch._foreach_norm(tensors)  # noqa: SLF001
        return torch.stack([norm.float() for norm in found] if len({norm.dtype for norm in found}) > 1 else list(found))


def nonfinite(tensors: list[torch.Tensor]) -> torch.Tensor:
    """NaN and infinite values of each, as one vector."""
    with torch.no_grad():
        return torch.stack([tensor.numel() - torch.isfinite(tensor).sum() for tensor in tensors])
