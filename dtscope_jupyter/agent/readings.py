# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers on their way from tensors to rows: read on the writing thread, from a device once their copy has ended."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

PIECE = 2**18
_PLAIN = {torch.float32, torch.float64}
Landing: TypeAlias = "tuple[torch.Tensor, Any]"


class Landings:
    """Pinned memory in which copies from a device land, each with the event that ends its copy: used again and again, never freed.

    To free either takes the driver's lock, which a launch holds as long as the device's queue is full: in a hang for ever.
    """

    def __init__(self) -> None:
        """None yet."""
        self._free: dict[Hashable, deque[Landing]] = {}

    def take(self, key: Hashable, make: Callable[[], Landing]) -> Landing:
        """One of the kind to which nothing is copied any more, else a new one."""
        free = self._free.setdefault(key, deque())
        if free:
            landing = free.popleft()
            if landing[1].query():
                return landing
            free.append(landing)
        return make()

    def give_back(self, key: Hashable, landing: Landing) -> None:
        """Whoever took it reads it no more; its copy may still be under way."""
        self._free[key].append(landing)


class Reading:
    """A vector of scalars."""

    __slots__ = ("_event", "_key", "_values")
    landings: ClassVar[Landings] = Landings()

    def __init__(self, values: torch.Tensor) -> None:
        """From a device it starts for the host now, and nothing waits."""
        self._event: torch.cuda.Event | None = None
        self._values = values
        if values.is_cuda:
            self._key = values.device, values.shape, values.dtype
            self._values, self._event = self.landings.take(self._key, lambda: _landing(values))
            self._values.copy_(values, non_blocking=True)
            self._event.record()

    def __del__(self) -> None:
        """Frees nothing of the device's."""
        if self._event is not None:
            self.landings.give_back(self._key, (self._values, self._event))

    def done(self) -> bool:
        """Whether `values` can be had without waiting."""
        return self._event is None or bool(self._event.query())

    def values(self) -> list[float]:
        """The scalars."""
        return [float(value) for value in self._values.tolist()]

    def squares(self) -> list[float]:
        """Of what `squares` gave."""
        return self.values() if self._event is None else [value * value for value in self.values()]


def _landing(values: torch.Tensor) -> Landing:
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True), torch.cuda.Event()


def held(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values that a tensor stores: itself, or those of a sparse one with duplicates summed.

    None for a sparse one on a device, since summing its duplicates would wait for the device, and for other layouts.
    """
    if tensor.layout is torch.strided:
        return tensor
    if tensor.layout is not torch.sparse_coo or tensor.is_cuda:
        return None
    with torch.no_grad():
        return tensor.coalesce().values()


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor: itself, or what a sparse one stores, duplicates apart; writing there changes the tensor."""
    return tensor._values() if tensor.is_sparse else tensor  # noqa: SLF001 # values() refuses what isn't coalesced


def norms(tensors: list[torch.Tensor]) -> torch.Tensor:
    """L2 norm of each as one vector, by one multi-tensor call."""
    with torch.no_grad():
        found = torch._foreach_norm(tensors)  # noqa: SLF001
        return torch.stack([norm.float() for norm in found] if len({norm.dtype for norm in found}) > 1 else list(found))


def squares(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The square of the L2 norm of all in parts: scalars or a vector. On a device, norms: who reads them squares them (`Reading.squares`).

    A CPU adds the values up one after the other, so that in float32 the order would show: large tensors are cut. `dot` keeps more
    sums at once than a norm does, and so is as exact in larger pieces, and quicker.
    """
    with torch.no_grad():
        if tensors and not tensors[0].is_cuda and {tensor.dtype for tensor in tensors} <= _PLAIN:
            try:
                return [torch.dot(piece, piece) for tensor in tensors for piece in _pieces(tensor.view(-1))]
            except RuntimeError:  # one that does not lie in memory in order
                pass
        if not tensors or tensors[0].is_cuda:
            return [norms(tensors)] if tensors else []
        return [norms([piece for tensor in tensors for piece in _pieces(tensor.reshape(-1))]).double().square()]


def _pieces(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (tensor,) if tensor.numel() <= PIECE else tensor.split(PIECE)


def nonfinite(tensors: list[torch.Tensor]) -> torch.Tensor:
    """NaN and infinite values of each, as one vector."""
    with torch.no_grad():
        return torch.stack([tensor.numel() - torch.isfinite(tensor).sum() for tensor in tensors])
