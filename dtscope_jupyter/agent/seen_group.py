# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A process group that DDP's C++ part uses in place of the real one: the same backends, and we see what is reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import ProcessGroup
from torch._compile import _disable_dynamo
from torch.distributed.distributed_c10d import Backend

from dtscope_jupyter.agent.bucket import Bucket
from dtscope_jupyter.agent.operations import METHODS

_allreduce = ProcessGroup.allreduce
"""As torch has it, before anything is put in its place."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.buckets import Buckets
    from dtscope_jupyter.agent.layout import Layout


class SeenGroup(ProcessGroup):
    """Only a reducer ever holds it; the program's own group stays what it is, and does all but count buckets."""

    def __init__(self, group: Any, layout: Layout, owner: Callable[[], Buckets | None]) -> None:
        """Has the backends of `group`; RuntimeError or KeyError where one is of a kind that can't be shared."""
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg] # the stub lacks this overload
        self.model: Callable[[], Any] = lambda: None
        self.plain = True
        self._real = group
        self._layout = layout
        self._owner = owner
        self._next = 0
        self._scale = float(group.size())
        self._direct = type(group) is ProcessGroup
        self._kinds: dict[int, tuple[int, Any, Any]] = {}
        self._seq = 0
        kinds = Backend.backend_type_map
        backends = {device: group._get_backend(device) for device in group._device_types}  # noqa: SLF001
        for device, backend in backends.items():
            self._register_backend(device, kinds[backend.name().lower()], backend)
        self._set_default_backend(kinds[next(iter(backends.values())).name().lower()])
        self._set_group_name(group.group_name)
        self._set_group_desc(group.group_desc)

    def backward_begins(self) -> None:
        """The next all-reduce is that of bucket 0."""
        self._next = 0
        self._layout.backward_begins(self.model())

    @_disable_dynamo  # C++ calls it within compiled models; the public form would import torch._dynamo at once
    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override] # C++ calls it in this one way
        """Called from C++ for each bucket, and once for the map of unused parameters (integers)."""
        owner = self._owner()
        if owner is None or not owner.on or not torch.is_floating_point(tensors[0]):
            return self._real.allreduce(tensors, opts)
        index, buffer = self._next, tensors[0]
        self._next += 1
        if owner.quiet and self._direct and buffer.is_cuda:
            return self._counted(owner, index, tensors, opts)
        owner.look(self._bucket(index, buffer))
        owner.collectives.enter_bucket(index)
        try:
            work = self._real.allreduce(tensors, opts)
        finally:
            owner.issued += owner.collectives.leave_bucket()
        if buffer.is_cuda:
            owner.collectives.final_wait.bucket(work)
        return work

    def _counted(self, owner: Buckets, index: int, tensors: Any, opts: Any) -> Any:
        """In most steps on a device: no look at the bucket, and no more than a note that it was issued."""
        kind = self._kinds.get(index)
        if kind is None or index == 0:
            buffer = tensors[0]
            kind = self._kinds[index] = (buffer.numel() * buffer.element_size(), buffer.dtype, buffer.shape)
            self._seq = int(self._real._get_sequence_number_for_group()) - index  # noqa: SLF001
        owner.collectives.count_bucket(self._real, index, kind, self._seq + index + 1)
        work = _allreduce(self._real, tensors, opts)
        owner.collectives.final_wait.bucket(work)
        return work

    def _bucket(self, index: int, buffer: torch.Tensor) -> Bucket:
        """With a built-in hook of DDP's the buffer is what that has made of it."""
        if not self.plain:
            return Bucket(index, buffer, None, 1.0, in_place=False)
        members = self._layout.bucket(index, buffer.numel())
        return Bucket(index, buffer, members, self._scale, in_place=not buffer.is_sparse, final=self._layout.final)


def _delegate(name: str) -> Callable[..., Any]:
    @_disable_dynamo
    def call(self: SeenGroup, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._real, name)(*args, **kwargs)

    return call


for _name in METHODS.keys() - {"allreduce"}:
    if hasattr(ProcessGroup, _name):
        setattr(SeenGroup, _name, _delegate(_name))
