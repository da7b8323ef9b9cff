# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of the models on this rank: their numbers, names and buckets, and the time each gradient is ready."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.ready_times import ReadyTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dtscope_jupyter.agent.recorder import Recorder

_PATIENCE_NS = 5 * 10**9


class Parameters:
    """Numbers parameters in the order in which their models are found."""

    def __init__(self, recorder: Recorder) -> None:
        """None is known yet."""
        self.ready: list[int] = []
        self.buckets: dict[int, int] = {}
        self.final = False
        self.wrapped: list[frozenset[int]] = []
        self._reduced: set[int] = set()
        self._recorder = recorder
        self._alive: list[weakref.ref[torch.Tensor]] = []
        self._ids: dict[int, int] = {}
        self._handles: list[Any] = []
        self._listening = True
        self._unwritten: list[tuple[int, bool, tuple[Any, ...]]] = []
        self._found_at = 0
        self._reducers: list[ReadyTimes] = []

    def __len__(self) -> int:
        """How many are numbered."""
        return len(self.ready)

    def at(self, number: int) -> torch.Tensor | None:
        """The parameter of a number; None once it is gone."""
        return self._alive[number]()

    def number(self, parameter: torch.Tensor) -> int | None:
        """The parameter's number; None for one of no known model."""
        return self._ids.get(id(parameter))

    def in_bucket(self, parameter: torch.Tensor) -> bool:
        """Whether DDP reduces it."""
        return self._ids.get(id(parameter)) in self._reduced

    def bucketed(self, left_out: frozenset[int] = frozenset()) -> list[torch.Tensor]:
        """Those that DDP reduces, but for these numbers."""
        alive = (self._alive[number]() for number in sorted(self._reduced - left_out))
        return [parameter for parameter in alive if parameter is not None]

    def loose(self) -> list[torch.Tensor]:
        """Those that DDP does not reduce and that are held whole."""
        alive = (reference() for number, reference in enumerate(self._alive) if number not in self._reduced)
        return [parameter for parameter in alive if parameter is not None and local(parameter) is parameter]

    def add(self, model: torch.nn.Module) -> None:
        """Numbers the parameters that train, and hangs a hook on each while these are wanted."""
        reduced = {id(p) for module in model.modules() if isinstance(module, DistributedDataParallel) for p in module.parameters()}
        self._found_at, self.final = now(), False
        told = self._told_by_reducers(model)
        for name, owner, parameter in _named(model):
            known = self._ids.get(id(parameter))
            if known is not None and id(parameter) in reduced:
                self._reduced.add(known)
            if known is not None or not parameter.requires_grad:
                continue
            number = len(self.ready)
            self.ready.append(0)
            self._ids[id(parameter)] = number
            self._alive.append(weakref.ref(parameter))
            weakref.finalize(parameter, self._ids.pop, id(parameter), None)
            if self._listening and id(parameter) not in told:
                self._hook(number, parameter)
            if id(parameter) in reduced:
                self._reduced.add(number)
            self._unwritten.append((number, id(parameter) in reduced, _row(number, name, owner, parameter)))
        models = (module for module in model.modules() if isinstance(module, DistributedDataParallel))
        self.wrapped += [frozenset(self._ids[id(p)] for p in module.parameters() if id(p) in self._ids) for module in models]

    def listen(self, *, on: bool) -> None:
        """Hangs the hooks on or takes them off; before a backward."""
        if on == self._listening:
            return
        self._listening = on
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        told = set().union(*(reducer.told for reducer in self._reducers))
        for number, reference in enumerate(self._alive) if on else ():
            parameter = reference()
            if parameter is not None and id(parameter) not in told and self.number(parameter) == number:
                self._hook(number, parameter)

    def _told_by_reducers(self, model: torch.nn.Module) -> set[int]:
        """The parameters on a device of which DDP's C++ part keeps the times: all but one, which puts them on our clock."""
        models = (module for module in model.modules() if isinstance(module, DistributedDataParallel))
        found = [reducer for reducer in map(ReadyTimes.of, models) if reducer is not None]
        self._reducers += found
        return set().union(*(reducer.told for reducer in found))

    def _hook(self, number: int, parameter: torch.Tensor) -> None:
        """Autograd refuses one that is frozen for now; it has no gradient either."""
        if parameter.requires_grad:
            self._handles.append(parameter.register_post_accumulate_grad_hook(_stamp(self.ready, number)))

    def take(self, *, wanted: bool) -> list[int]:
        """The times since the last call, by number; 0 where no gradient came, or where they are not `wanted` and take effort."""
        for reducer in self._reducers if wanted else ():
            reducer.fill(self.ready, self._ids)
        times, self.ready[:] = self.ready[:], [0] * len(self.ready)
        return times

    def release(self) -> None:
        """Takes the hooks off, until they are wanted again."""
        self.listen(on=False)

    def write(self, *, final: bool) -> None:
        """Rows of `parameters`; those in buckets once DDP has rebuilt these, or after five seconds."""
        late = final or now() - self._found_at > _PATIENCE_NS
        waiting: list[tuple[int, bool, tuple[Any, ...]]] = []
        for number, in_buckets, row in self._unwritten:
            if in_buckets and not late and not (self.final and number in self.buckets):
                waiting.append((number, in_buckets, row))
            else:
                self._recorder.add("parameters", (*row, self.buckets.get(number)))
        self._unwritten = waiting


def _named(model: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    for prefix, module in inner.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            yield f"{prefix}.{name}" if prefix else name, type(module).__name__, parameter


def _row(number: int, name: str, owner: str, parameter: torch.Tensor) -> tuple[Any, ...]:
    held = local(parameter)
    return number, name, owner, str(list(parameter.shape)), held.numel(), str(parameter.dtype).removeprefix("torch.")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it, without communication."""
    shard = getattr(tensor, "_local_tensor", None)
    return shard if isinstance(shard, torch.Tensor) else tensor


def _stamp(ready: list[int], number: int, clock: Callable[[], int] = now) -> Callable[[torch.Tensor], None]:
    def hook(_parameter: torch.Tensor) -> None:
        ready[number] = clock()

    return hook
