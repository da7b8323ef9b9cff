# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What each method of a ProcessGroup moves: its operation, the tensors, and the bytes as nccl-tests counts them.

All-reduce, broadcast, reduce: the whole buffer. All-gather and gather: the gathered total. Reduce-scatter,
scatter and all-to-all: the total before it is scattered. Send, receive: the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Message(NamedTuple):
    """The input (its dtype, shape and layout count) and all bytes."""

    tensor: torch.Tensor | None
    bytes: int
    peer: int | None = None


class Method(NamedTuple):
    """A method of ProcessGroup: the operation it stands for, and how to read its arguments."""

    operation: str
    read: Callable[[tuple[Any, ...], int], Message]


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)] if isinstance(value, (list, tuple)) else []


def _message(tensors: list[torch.Tensor], count: int, peer: int | None = None) -> Message:
    return Message(tensors[0] if tensors else None, count, peer)


def _buffer(args: tuple[Any, ...], _size_of_group: int) -> Message:
    tensors = _flat(args[0])
    return _message(tensors, sum(map(_size, tensors)))


def _gathered(args: tuple[Any, ...], group_size: int) -> Message:
    tensors = _flat(args[1])
    return _message(tensors, group_size * sum(map(_size, tensors)))


def _unscattered(args: tuple[Any, ...], _size_of_group: int) -> Message:
    tensors = _flat(args[1])
    return _message(tensors, sum(map(_size, tensors)))


def _scattered(args: tuple[Any, ...], group_size: int) -> Message:
    tensors = _flat(args[0])
    return _message(tensors, group_size * sum(map(_size, tensors)))


def _peer(args: tuple[Any, ...], _size_of_group: int) -> Message:
    tensors = _flat(args[0])
    return _message(tensors, sum(map(_size, tensors)), args[1] if len(args) > 1 and isinstance(args[1], int) else None)


def _nothing(_args: tuple[Any, ...], _size_of_group: int) -> Message:
    return Message(None, 0)


METHODS: dict[str, Method] = {
    "allreduce": Method("all_reduce", _buffer),
    "allreduce_coalesced": Method("all_reduce", _buffer),
    "broadcast": Method("broadcast", _buffer),
    "reduce": Method("reduce", _buffer),
    "allgather": Method("all_gather", _gathered),
    "allgather_coalesced": Method("all_gather", _gathered),
    "_allgather_base": Method("all_gather", _gathered),
    "all_gather_single": Method("all_gather", _gathered),
    "allgather_into_tensor_coalesced": Method("all_gather", _gathered),
    "all_gather_single_coalesced": Method("all_gather", _gathered),
    "gather": Method("gather", _gathered),
    "scatter": Method("scatter", _scattered),
    "reduce_scatter": Method("reduce_scatter", _unscattered),
    "_reduce_scatter_base": Method("reduce_scatter", _unscattered),
    "reduce_scatter_single": Method("reduce_scatter", _unscattered),
    "reduce_scatter_tensor_coalesced": Method("reduce_scatter", _unscattered),
    "reduce_scatter_single_coalesced": Method("reduce_scatter", _unscattered),
    "alltoall": Method("all_to_all", _unscattered),
    "alltoall_base": Method("all_to_all", _unscattered),
    "all_to_all_single": Method("all_to_all", _unscattered),
    "send": Method("send", _peer),
    "recv": Method("recv", _peer),
    "recv_anysource": Method("recv", _buffer),
    "barrier": Method("barrier", _nothing),
}
"""The names of torch 2.11 to 2.14; those that a version lacks are left out."""
