# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets, through a communication hook of ours that stands in for DDP's own or runs the user's.

It is registered before a model's first backward, once. A user's hook registered earlier or later is taken in: torch
checks and names it as ever, and only where it hands it to C++ ours goes in its place. Without a user's hook
the bucket is multiplied by 1 / world size and summed, bit for bit what DDP does itself (a division is not).
Within `Join` with divide_by_initial_world_size=False DDP would divide by the ranks left; we do not.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.nn.parallel import DistributedDataParallel

    from dtscope_jupyter.agent.collectives import Collectives
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.operation import Operation

Hook = Any


class Buckets(Collector):
    """Hooks on all DDP models; as none can be taken off, they pass through while nobody records."""

    name = "buckets"

    def __init__(self, agent: Agent, collectives: Collectives) -> None:
        """Hooks come with `start`, a model's own with its first backward."""
        super().__init__(agent)
        self.before_reduce: list[Callable[[BucketHook, Any], None]] = []
        self.collectives = collectives

    def start(self) -> None:
        """Installs the hooks."""
        _registry.install()
        _registry.owner = self

    def stop(self) -> None:
        """The hooks pass through from now on; a user's later hook is still taken in."""
        if _registry.owner is self:
            _registry.owner = None

    def adopt(self, model: DistributedDataParallel) -> None:
        """Registers with a model that has no hook yet."""
        _registry.adopt(model)

    def look(self, hook: BucketHook, bucket: Any) -> None:
        """Shows the bucket, full and not yet reduced, to whom it concerns."""
        try:
            for call in self.before_reduce:
                call(hook, bucket)
        except Exception as error:  # noqa: BLE001 # training goes on without us
            self.agent.fail(self.name, error)

    def backward_ended(self) -> None:
        """Tells which buckets the backward has waited for."""
        for hook in _registry.hooks.values():
            if hook is not None and hook.issued:
                self.collectives.finalised(hook.issued)
                hook.issued = []


class BucketHook:
    """What DDP's C++ calls for each bucket; `user` is the (state, hook) that it stands before, `members` the parameters by bucket."""

    def __init__(self, group: Any, user: tuple[Any, Hook] | None = None) -> None:
        """`group` reduces where there is no user's hook."""
        self.group = group
        self.user = user
        self.issued: list[Operation] = []
        self.members: dict[int, tuple[int, list[torch.Tensor]]] = {}

    def __call__(self, _state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Looks at the bucket, then has it reduced as it would be without us."""
        owner = _registry.owner
        if owner is None or not owner.on:
            return self._run(bucket)
        owner.look(self, bucket)
        owner.collectives.enter_bucket(bucket.index())
        try:
            return self._run(bucket)
        finally:
            self.issued += owner.collectives.leave_bucket()

    def _run(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if self.user is None:
            return self._reduce(bucket.buffer())
        state, hook = self.user
        future: torch.futures.Future[torch.Tensor] = hook(state, bucket)
        return future

    def _reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        options = dist.AllreduceOptions()
        options.asyncOp = True
        if buffer.is_sparse:
            buffer.div_(self.group.size())
        else:
            buffer.mul_(1.0 / self.group.size())
        future: torch.futures.Future[torch.Tensor] = self.group.allreduce([buffer], options).get_future().then(_first)
        return future


def _first(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]


class _Registry:
    """The hooks of this process by DDP's reducer; None stands for a hook of DDP's own making that can't be taken in."""

    def __init__(self) -> None:
        self.owner: Buckets | None = None
        self.hooks: weakref.WeakKeyDictionary[Any, BucketHook | None] = weakref.WeakKeyDictionary()
        self._patches: Patches | None = None
        self._natively: Callable[..., None] = _c10d._register_comm_hook  # noqa: SLF001
        self._builtin_natively: Callable[..., None] = _c10d._register_builtin_comm_hook  # noqa: SLF001

    def install(self) -> None:
        """Once a process: DDP keeps a hook for good, so that what takes in a user's has to stay as well."""
        if self._patches is None:
            self._patches = Patches()
            self._patches.wrap(dist, "_register_comm_hook", lambda _native: self.register)
            self._patches.wrap(dist, "_register_builtin_comm_hook", lambda _native: self.register_builtin)

    def adopt(self, model: DistributedDataParallel) -> None:
        reducer = model.reducer
        if reducer in self.hooks or model._comm_hooks:  # noqa: SLF001
            return
        hook = BucketHook(model.process_group)
        self._natively(reducer, None, hook)
        self.hooks[reducer] = hook

    def register(self, reducer: Any, state: Any, comm_hook: Hook) -> None:
        ours = self.hooks.get(reducer)
        if ours is not None and ours.user is None:
            ours.user = (state, comm_hook)
        elif reducer in self.hooks or self.owner is None:
            self._natively(reducer, state, comm_hook)
        else:
            hook = BucketHook(None, (state, comm_hook))
            self._natively(reducer, None, hook)
            self.hooks[reducer] = hook

    def register_builtin(self, reducer: Any, comm_hook_type: Any) -> None:
        ours = self.hooks.get(reducer)
        if ours is None or ours.user is not None:
            self._builtin_natively(reducer, comm_hook_type)
            self.hooks[reducer] = None
        else:
            fp16 = comm_hook_type == _c10d.BuiltinCommHookType.FP16_COMPRESS
            ours.user = (ours.group, default_hooks.fp16_compress_hook if fp16 else default_hooks.allreduce_hook)


_registry = _Registry()
