# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A process group that DDP's C++ part uses in place of the real one: the same backends, and we see what is reduced.

In most steps the reducer has the real group, and its calls stay in C++; on a device a hook on a parameter of the last bucket puts
ours in its place for that one. (A class without an override would not do: torch calls its base under the interpreter's lock, and
the threads of a backend end works, and what Python has hung on these, under a lock of theirs: each would wait for the other.)
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Reducer
from torch.distributed.distributed_c10d import Backend

from dtscope_jupyter.agent.bucket import Bucket
from dtscope_jupyter.agent.glimpse import Glimpse
from dtscope_jupyter.agent.operations import METHODS
from dtscope_jupyter.agent.steady import Expected
from dtscope_jupyter.agent.uncompiled import uncompiled

_allreduce = ProcessGroup.allreduce
"""As torch has it, before anything is put in its place."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.buckets import Buckets
    from dtscope_jupyter.agent.host_wait import HostWait
    from dtscope_jupyter.agent.layout import Layout


class SeenGroup(ProcessGroup):
    """Only a reducer ever holds it; the program's own group stays what it is, and does all but show each bucket as it is reduced."""

    def __init__(self, group: Any, layout: Layout, owner: Callable[[], Buckets | None]) -> None:
        """Has the backends of `group`; RuntimeError or KeyError where one can't be shared, AttributeError in an old torch."""
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg] # the stub lacks this overload
        self.model: Callable[[], Any] = lambda: None
        self.plain = True
        self._update = Reducer._update_process_group  # noqa: SLF001
        self._reducer: Callable[[], Any] = lambda: None
        self._placed = True
        self._real = group
        self._layout = layout
        self._owner = owner
        self._next = 0
        self._scale = float(group.size())
        self._direct = type(group) is ProcessGroup
        self.quiet = False
        self._anchor: Any = None
        self._on_host = all(parameter.device.type == "cpu" for parameter in layout.parameters)
        self.expected: Any = None
        kinds = Backend.backend_type_map
        backends = {device: group._get_backend(device) for device in group._device_types}  # noqa: SLF001
        for device, backend in backends.items():
            self._register_backend(device, kinds[backend.name().lower()], backend)
        self._set_default_backend(kinds[next(iter(backends.values())).name().lower()])
        self._set_group_name(group.group_name)
        self._set_group_desc(group.group_desc)

    def bind(self, reducer: Any, *, placed: bool) -> None:
        """The reducer that it is for; `placed`: that has it already."""
        self._reducer, self._placed = weakref.ref(reducer), placed

    def backward_begins(self, owner: Buckets) -> None:
        """The next all-reduce is that of bucket 0; a quiet backward is seen at its end alone."""
        if self.quiet and owner.quiet and self._on_host:
            owner.collectives.expect_buckets(*self.expected)
            return
        self._next = 0
        self._layout.backward_begins(self.model())
        self.quiet = owner.quiet and self._direct and self._anchored(owner)
        self._put(placed=not self.quiet)
        if self.quiet:
            number = self._real._get_sequence_number_for_group  # noqa: SLF001
            self.expected = Expected(owner.collectives.groups.of(self._real), number, self._layout.kinds)
            owner.collectives.expect_buckets(*self.expected)

    def _put(self, *, placed: bool) -> None:
        """Gives the reducer this group, or the real one."""
        reducer = self._reducer()
        if placed != self._placed and reducer is not None:
            self._update(reducer, self if placed else self._real)
            self._placed = placed

    def release(self) -> None:
        """Nobody records: the reducer has the real group."""
        self.quiet = False
        self._put(placed=False)
        if self._anchor is not None:
            self._anchor.remove()
            self._anchor = None

    def _anchored(self, owner: Buckets) -> bool:
        """Whether a hook tells when the last bucket is about to be reduced; it comes once buckets stay as they are."""
        last = self._layout.last
        if self._anchor is None and last is not None and last.requires_grad:
            group, wait = weakref.ref(self), owner.collectives.host_wait
            hook = _nearing_on_host(group, wait, Glimpse(last)) if self._on_host else _nearing(group)
            self._anchor = last.register_post_accumulate_grad_hook(hook)
        return self._anchor is not None

    def near_end(self) -> None:
        """On a device: the buckets from here on are seen."""
        if self.quiet:
            self._put(placed=True)

    def spoilt(self, gradient: torch.Tensor, parameter: torch.Tensor) -> None:
        """On a CPU, as a glance at the last gradient of a quiet backward found something that is not finite."""
        owner = self._owner()
        if owner is not None and owner.on:
            owner.glance(gradient, parameter)

    def failed(self, error: Exception) -> None:
        """What looks at buckets goes off."""
        owner = self._owner()
        if owner is not None:
            owner.agent.fail(owner.name, error)

    @uncompiled  # C++ calls it within compiled models
    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override] # C++ calls it in this one way
        """Called from C++ for each bucket, and once for the map of unused parameters (integers)."""
        owner, buffer = self._owner(), tensors[0]
        if owner is None or not owner.on:
            return self._real.allreduce(tensors, opts)
        if self.quiet:
            owner.glance(buffer)
            work = _allreduce(self._real, tensors, opts)
            owner.collectives.final_wait.bucket(work)
            return work
        if not torch.is_floating_point(buffer):
            return self._real.allreduce(tensors, opts)
        began = owner.agent.cost.look_began()
        index, self._next = self._next, self._next + 1
        owner.look(self._bucket(index, buffer))
        owner.collectives.enter_bucket(index)
        owner.agent.cost.looked(began)
        try:
            work = self._real.allreduce(tensors, opts)
        finally:
            issued = owner.collectives.leave_bucket()
            owner.issued += issued
            owner.waited_for += issued
        owner.collectives.works.pop(work)  # it is waited for in C++
        if buffer.is_cuda:
            owner.collectives.final_wait.bucket(work)
        return work

    def _bucket(self, index: int, buffer: torch.Tensor) -> Bucket:
        """With a built-in hook of DDP's the buffer is what that has made of it."""
        if not self.plain:
            return Bucket(index, buffer, None, 1.0, in_place=False)
        members = self._layout.bucket(index, buffer.numel())
        return Bucket(index, buffer, members, self._scale, in_place=not buffer.is_sparse, final=self._layout.final)


def _nearing(group: Callable[[], SeenGroup | None]) -> Callable[[torch.Tensor], None]:
    @uncompiled
    def hook(_parameter: torch.Tensor) -> None:
        found = group()
        if found is None:
            return
        try:
            found.near_end()
        except Exception as error:  # noqa: BLE001 # training goes on without us
            found.failed(error)

    return hook


def _nearing_on_host(group: Callable[[], SeenGroup | None], wait: HostWait, glimpse: Glimpse) -> Callable[[torch.Tensor], None]:
    """Buckets are not seen there: it is enough to know that they come, and to glance at a gradient."""
    last_gradient, finite = wait.last_gradient, glimpse.finite

    @uncompiled
    def hook(parameter: torch.Tensor) -> None:
        found = group()
        if found is None or not found.quiet:
            return
        try:
            last_gradient()
            gradient = parameter.grad
            if gradient is not None and not finite(gradient):
                found.spoilt(gradient, parameter)
        except Exception as error:  # noqa: BLE001 # training goes on without us
            found.failed(error)

    return hook


def _delegate(name: str) -> Callable[..., Any]:
    @uncompiled
    def call(self: SeenGroup, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._real, name)(*args, **kwargs)

    return call


for _name in METHODS.keys() - {"allreduce"}:
    if hasattr(ProcessGroup, _name):
        setattr(SeenGroup, _name, _delegate(_name))
