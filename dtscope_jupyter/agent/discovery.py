# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Finds models and optimizers by their type, so that an unchanged program can be observed.

The heap is looked through once, at the first backward, and again after an optimizer has shown up whose parameters are of no known model,
or DDP was put around one anew.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import torch
from torch.nn.parallel import DistributedDataParallel

from dtscope_jupyter.agent.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.steps import Steps


_FREELY, _REST = 5, 100
"""A program may make optimizers all the time: after so many times the heap is looked through for a hundredth of it."""


class Discovery:
    """Tells others of models (outermost modules with parameters that train) and DDP models, once each."""

    def __init__(self, agent: Agent, steps: Steps) -> None:
        """Nothing is known yet."""
        self.on_ddp: list[Callable[[DistributedDataParallel], None]] = []
        self.on_model: list[Callable[[torch.nn.Module], None]] = []
        self._agent = agent
        self._steps = steps
        self._known: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._parameters: dict[int, weakref.ref[torch.Tensor]] = {}
        self._due = True
        self._looks = self._not_before = 0

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """One has shown up: where it trains what is not known yet, the next backward has it looked for."""
        first = next((parameter for group in optimizer.param_groups for parameter in group["params"]), None)
        known = self._parameters.get(id(first))
        if first is not None and (known is None or known() is not first):
            self._parameters[id(first)] = weakref.ref(first)
            self.expect()

    def expect(self) -> None:
        """Something new was made, such as a DDP model of what is known: the next backward has it looked for."""
        self._due = True
        self._agent.progress.steady.expire()

    def named(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """The user's word."""
        self.model(model)
        if optimizer is not None:
            self._steps.knows(optimizer)

    def look(self) -> None:
        """On the training thread, as a backward begins."""
        begun = now()
        if not self._due or begun < self._not_before:
            return
        modules: list[torch.nn.Module] = []
        for thing in gc.get_objects():
            kind = type(thing)
            if issubclass(kind, torch.nn.Module):
                modules.append(thing)
            elif issubclass(kind, torch.optim.Optimizer):
                self._steps.knows(thing)
        for model in _outermost(modules):
            self.model(model)
        self._due = False
        self._looks += 1
        self._not_before = now() + _REST * (now() - begun) if self._looks > _FREELY else 0

    def model(self, model: torch.nn.Module) -> None:
        """A model, found or named by the user."""
        if model in self._known:
            return
        self._known.add(model)
        for module in model.modules():
            if isinstance(module, DistributedDataParallel):
                for call in self.on_ddp:
                    call(module)
        parameters = [p for p in model.parameters() if p.requires_grad]
        self._steps.sample(list(parameters))
        self._parameters = {number: alive for number, alive in self._parameters.items() if alive() is not None}
        self._parameters |= {id(parameter): weakref.ref(parameter) for parameter in parameters}
        for report in self.on_model:
            report(model)


def _outermost(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
    inner = {id(child) for module in modules for child in module._modules.values()}  # noqa: SLF001
    return [module for module in modules if id(module) not in inner and any(p.requires_grad for p in module.parameters())]
