# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets, seen where its C++ part hands them to the process group.

A model's reducer gets a stand-in for its group (`seen_group`), which costs no pass over the gradients: DDP scales them as
it fills the bucket. One that looks for unused parameters and was built before we were armed gets a communication hook instead, as
nothing tells what lies in its buckets; there is no taking it off. It multiplies by 1 / world size and sums, bit for bit what DDP does.
A user's hook, registered before or after, runs inside ours; torch checks, names and refuses it as ever.
Within `Join` with divide_by_initial_world_size=False DDP would divide by the ranks left; our hook does not.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from dtscope_jupyter.agent.bucket import Bucket
from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.layout import Layout
from dtscope_jupyter.agent.patches import Patches
from dtscope_jupyter.agent.seen_group import SeenGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.nn.parallel import DistributedDataParallel

    from dtscope_jupyter.agent.collectives import Collectives
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.operation import Operation
    from dtscope_jupyter.agent.steady import Expected

Future = torch.futures.Future[torch.Tensor]
_NO_GROUP = (RuntimeError, TypeError, ValueError, AttributeError, KeyError)


class Buckets(Collector):
    """The buckets of all DDP models; what sees them passes through while nobody records."""

    name = "buckets"

    def __init__(self, agent: Agent, collectives: Collectives) -> None:
        """Hooks come with `start`."""
        super().__init__(agent)
        self.before_reduce: list[Callable[[Bucket], None]] = []
        self.at_last: list[Callable[[torch.Tensor, torch.Tensor | None], None]] = []
        self.quiet_if: list[Callable[[], bool]] = []
        self.on_made: list[Callable[[], None]] = []
        self.quiet = False
        self.collectives = collectives
        self.issued: list[Operation] = []
        self.waited_for: list[Operation] = []

    def start(self) -> None:
        """Installs the hooks."""
        _registry.install()
        _registry.owner = self

    def stop(self) -> None:
        """They pass through from now on."""
        if _registry.owner is self:
            _registry.owner = None
            for seen in tuple(_registry.seen.values()):
                seen.release()

    def adopt(self, model: DistributedDataParallel) -> None:
        """A DDP model has been found."""
        _registry.adopt(model)

    def look(self, bucket: Bucket) -> None:
        """Shows a bucket, full and not yet reduced, to whom it concerns."""
        try:
            for call in self.before_reduce:
                call(bucket)
        except Exception as error:  # noqa: BLE001 # training goes on without us
            self.agent.fail(self.name, error)

    def glance(self, gradient: torch.Tensor, parameter: torch.Tensor | None = None) -> None:
        """Shows the last bucket, not yet reduced, or the gradient of a parameter in it, of a backward whose others nobody looks at."""
        try:
            for call in self.at_last:
                call(gradient, parameter)
        except Exception as error:  # noqa: BLE001 # training goes on without us
            self.agent.fail(self.name, error)

    def backward_begins(self) -> None:
        """Buckets are counted anew; on a device nobody looks at them in most steps (`quiet`)."""
        self.quiet = self.collectives.counting and self.collectives.on
        if self.quiet:
            for quiet in self.quiet_if:
                self.quiet &= quiet()
        for reference in _registry.groups:
            seen = reference()
            if seen is not None:
                seen.backward_begins(self)

    def expected(self) -> list[Expected] | None:
        """What each backward issues while nobody looks; None where somebody has to."""
        if not self.quiet or _registry.hooked:
            return None
        seen = [group for reference in _registry.groups if (group := reference()) is not None]
        return [group.expected for group in seen] if all(group.quiet for group in seen) else None

    def backward_ended(self) -> None:
        """Tells which buckets the backward has waited for."""
        self.collectives.host_wait.backward_ended()
        if sys.exc_info()[0] is None:
            self._over()
            self.collectives.buckets_over()
        self.waited_for.clear()
        if self.issued:
            issued, self.issued = self.issued, []
            self.collectives.waits.finalised(issued)

    def _over(self) -> None:
        """C++ has waited for them: who notes their ends as they come, on a backend's thread, may still wait for the interpreter's lock."""
        end = self.agent.progress.backward_end or now()
        for operation in self.waited_for:
            if operation.events is None and not operation.raised:
                operation.end = operation.end or end


class _BucketHook:
    """What DDP's C++ calls for each bucket; `user` is the (state, hook) that it stands before."""

    def __init__(self, group: Any, user: tuple[Any, Any] | None = None) -> None:
        self.group = group
        self.user = user

    def __call__(self, _state: object, bucket: Any) -> Future:
        owner = _registry.owner
        if owner is None or not owner.on:
            return self._run(bucket)
        owner.look(Bucket(bucket.index(), bucket.buffer(), bucket.parameters(), 1.0, in_place=self.user is None))
        owner.collectives.enter_bucket(bucket.index())
        try:
            return self._run(bucket)
        finally:
            owner.issued += owner.collectives.leave_bucket()

    def _run(self, bucket: Any) -> Future:
        if self.user is None:
            return self._reduce(bucket.buffer())
        state, hook = self.user
        future: Future = hook(state, bucket)
        return future

    def _reduce(self, buffer: torch.Tensor) -> Future:
        options = dist.AllreduceOptions()
        options.asyncOp = True
        if buffer.is_sparse:
            buffer.div_(self.group.size())
        else:
            buffer.mul_(1.0 / self.group.size())
        work = self.group.allreduce([buffer], options)
        owner = _registry.owner
        if owner is not None and buffer.is_cuda:
            owner.collectives.final_wait.bucket(work)
        future: Future = work.get_future().then(_first)
        return future


def _first(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]


class _Registry:
    """What sees the buckets of each model, by DDP's reducer; a hook of None is one of torch's own that can't be taken in."""

    def __init__(self) -> None:
        self.owner: Buckets | None = None
        self.seen: weakref.WeakKeyDictionary[Any, SeenGroup] = weakref.WeakKeyDictionary()
        self.groups: list[weakref.ref[SeenGroup]] = []
        self._hooks: weakref.WeakKeyDictionary[Any, _BucketHook | None] = weakref.WeakKeyDictionary()
        self._patches: Patches | None = None
        self._natively: Callable[..., None] = _c10d._register_comm_hook  # noqa: SLF001
        self._builtin_natively: Callable[..., None] = _c10d._register_builtin_comm_hook  # noqa: SLF001

    @property
    def hooked(self) -> bool:
        """Whether a hook of ours sees the buckets of a model."""
        return any(hook is not None for hook in self._hooks.values())

    def install(self) -> None:
        """Once a process: DDP keeps a hook for good, so that what takes in a user's has to stay as well."""
        if self._patches is None:
            self._patches = Patches()
            self._patches.wrap(dist, "_register_comm_hook", lambda _native: self._register)
            self._patches.wrap(dist, "_register_builtin_comm_hook", lambda _native: self._register_builtin)
            self._patches.wrap(dist, "Reducer", self._reducer_maker)

    def adopt(self, model: DistributedDataParallel) -> None:
        """Tells the model to what sees it, or has it seen by a hook."""
        reducer = model.reducer
        if reducer in self.seen:
            self.seen[reducer].model = weakref.ref(model)
        elif reducer not in self._hooks and not model._comm_hooks and not self._stands_in(model):  # noqa: SLF001
            hook = _BucketHook(model.process_group)
            self._natively(reducer, None, hook)
            self._hooks[reducer] = hook

    def _stands_in(self, model: DistributedDataParallel) -> bool:
        """Whether a group could stand in for that of a model built earlier; what lies in its buckets its logging data will tell."""
        if model.find_unused_parameters and not model.static_graph:
            return False
        try:
            parameters, _sparse = model._build_params_for_reducer()  # noqa: SLF001
            seen = SeenGroup(model.process_group, Layout(list(parameters), None), lambda: self.owner)
        except _NO_GROUP as error:
            self._say(error)
            return False
        seen.model = weakref.ref(model)
        self._keep(model.reducer, seen, placed=False)
        return True

    def _say(self, error: Exception) -> None:
        if self.owner is not None:
            self.owner.agent.recorder.note("warning", "buckets", text=f"seen by a hook, since no group could stand in: {error}")

    def _keep(self, reducer: Any, seen: SeenGroup, *, placed: bool) -> None:
        seen.bind(reducer, placed=placed)
        self.seen[reducer] = seen
        self.groups = [reference for reference in (*self.groups, weakref.ref(seen)) if reference() is not None]

    def _reducer_maker(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def reducer(parameters: Any, indices: Any, limits: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
            owner = self.owner
            if owner is None or not owner.on:
                return native(parameters, indices, limits, group, *args, **kwargs)
            try:
                seen = SeenGroup(group, Layout(list(parameters), [list(bucket) for bucket in indices]), lambda: self.owner)
            except _NO_GROUP as error:
                self._say(error)
                return native(parameters, indices, limits, group, *args, **kwargs)
            made = native(parameters, indices, limits, seen, *args, **kwargs)
            self._keep(made, seen, placed=True)
            for call in owner.on_made:
                call()
            return made

        return reducer

    def _register(self, reducer: Any, state: Any, comm_hook: Any) -> None:
        ours = self._hooks.get(reducer)
        if ours is not None and ours.user is None:
            ours.user = (state, comm_hook)
        elif reducer in self._hooks or self.owner is None:
            self._natively(reducer, state, comm_hook)
        else:
            hook = _BucketHook(None, (state, comm_hook))
            self._natively(reducer, None, hook)
            self._hooks[reducer] = hook

    def _register_builtin(self, reducer: Any, comm_hook_type: Any) -> None:
        ours = self._hooks.get(reducer)
        if ours is None or ours.user is not None:
            self._builtin_natively(reducer, comm_hook_type)
            self._hooks[reducer] = None
            if reducer in self.seen:
                self.seen[reducer].plain = False
        else:
            fp16 = comm_hook_type == _c10d.BuiltinCommHookType.FP16_COMPRESS
            ours.user = (ours.group, default_hooks.fp16_compress_hook if fp16 else default_hooks.allreduce_hook)


_registry = _Registry()
