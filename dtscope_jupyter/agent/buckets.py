# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets, through a communication hook of ours that stands in for DDP's own or runs the user's.

It is registered before a model's first backward, once. A user's hook registered earlier or later is taken in: torch
checks and names it as ever, and only where it hands it to C++ ours goes in its place. Without a user's hook
the bucket is multiplied by 1 / world size and summed, bit for bit what DDP does itself (a division is not).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.patches import Patches, original

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.nn.parallel import DistributedDataParallel

    from dtscope_jupyter.agent.collectives import Collectives
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.operation import Operation

Hook = Any
_REGISTER, _REGISTER_BUILTIN = "_register_comm_hook", "_register_builtin_comm_hook"


class Buckets(Collector):
    """Hooks on all DDP models; there is no way to take one off, so that after `stop` it passes through."""

    name = "buckets"

    def __init__(self, agent: Agent, collectives: Collectives) -> None:
        """Hooks come with `start`, a model's own with its first backward."""
        super().__init__(agent)
        self.before_reduce: list[Callable[[BucketHook, Any], None]] = []
        self.models: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
        self.collectives = collectives
        self._patches = Patches()
        self._hooks: weakref.WeakKeyDictionary[Any, BucketHook | None] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Installs the hooks."""
        self._patches.wrap(dist, _REGISTER, self._register_wrapper)
        self._patches.wrap(dist, _REGISTER_BUILTIN, self._builtin_wrapper)

    def stop(self) -> None:
        """Nothing to do: the models' hooks look at `on`, and a user's later hook must still be taken in."""

    def adopt(self, model: DistributedDataParallel) -> None:
        """Registers with a model that has no hook yet."""
        self.models.add(model)
        if model.reducer in self._hooks or model._comm_hooks:  # noqa: SLF001
            return
        hook = self._hooks[model.reducer] = BucketHook(self, model.process_group)
        original(getattr(dist, _REGISTER))(model.reducer, None, hook)

    def look(self, hook: BucketHook, bucket: Any) -> None:
        """Shows the bucket, full and not yet reduced, to whom it concerns."""
        try:
            for call in self.before_reduce:
                call(hook, bucket)
        except Exception as error:  # noqa: BLE001 # training goes on without us
            self.agent.fail(self.name, error)

    def backward_ended(self) -> None:
        """Tells which buckets the backward has waited for."""
        for hook in self._hooks.values():
            if hook is not None and hook.issued:
                self.collectives.finalised(hook.issued)
                hook.issued = []

    def _register_wrapper(self, register_natively: Callable[..., None]) -> Callable[..., None]:
        def register(reducer: Any, state: Any, comm_hook: Hook) -> None:
            ours = self._hooks.get(reducer)
            if ours is not None and ours.user is None:
                ours.user = (state, comm_hook)
            elif reducer in self._hooks:
                register_natively(reducer, state, comm_hook)
            else:
                hook = BucketHook(self, None)
                hook.user = (state, comm_hook)
                register_natively(reducer, None, hook)
                self._hooks[reducer] = hook

        return register

    def _builtin_wrapper(self, register_natively: Callable[..., None]) -> Callable[..., None]:
        def register(reducer: Any, comm_hook_type: Any) -> None:
            ours = self._hooks.get(reducer)
            if ours is None or ours.user is not None:
                register_natively(reducer, comm_hook_type)
                self._hooks[reducer] = None
            else:
                fp16 = comm_hook_type == _c10d.BuiltinCommHookType.FP16_COMPRESS
                ours.user = (ours.group, default_hooks.fp16_compress_hook if fp16 else default_hooks.allreduce_hook)

        return register


class BucketHook:
    """What DDP's C++ calls for each bucket; `user` is the (state, hook) that it stands before, `members` the parameters by bucket."""

    def __init__(self, owner: Buckets, group: Any) -> None:
        self.owner = owner
        self.group = group
        self.user: tuple[Any, Hook] | None = None
        self.issued: list[Operation] = []
        self.members: dict[int, tuple[int, list[torch.Tensor]]] = {}

    def __call__(self, _state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Looks at the bucket, then has it reduced as it would be without us."""
        owner = self.owner
        if owner.on:
            owner.look(self, bucket)
        collectives = owner.collectives
        collectives.enter_bucket(bucket.index())
        try:
            return self._reduce(bucket) if self.user is None else self.user[1](self.user[0], bucket)
        finally:
            self.issued += collectives.leave_bucket()

    def _reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        buffer, options = bucket.buffer(), dist.AllreduceOptions()
        options.asyncOp = True
        if buffer.is_sparse:
            buffer.div_(self.group.size())
        else:
            buffer.mul_(1.0 / self.group.size())
        work = self.group.allreduce([buffer], options)
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(_first)
        return future


def _first(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]
