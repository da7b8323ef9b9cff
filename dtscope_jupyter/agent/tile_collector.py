# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""`gradient_tiles`: pictures of gradients, one parameter after the other, as the budget allows."""

from __future__ import annotations

from collections import deque
from time import thread_time_ns
from typing import TYPE_CHECKING

import torch

from dtscope_jupyter.agent import capture, tiles
from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.parameters import local
from dtscope_jupyter.agent.progress import HELD
from dtscope_jupyter.agent.readings import Reading

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.parameters import Parameters

_MOST = 256


class TileCollector(Collector):
    """Takes the picture of one parameter in a step, the same on every rank, in turn."""

    name = "gradient_tiles"

    def __init__(self, agent: Agent, parameters: Parameters) -> None:
        """No hook of its own: it is called as the optimizer begins."""
        super().__init__(agent)
        self._parameters = parameters
        self._taken: deque[tuple[int, int, int, int, int, Reading, Reading]] = deque(maxlen=_MOST)

    def before_optimizer(self, _optimizer: torch.optim.Optimizer) -> None:
        """Gradients are synchronised now."""
        cost = self.agent.cost
        count = len(self._parameters)
        if not self.on or not count or not cost.due("tiles") or capture.here():
            return
        start, used = now(), thread_time_ns()
        number = cost.turn("tiles") % count
        parameter = self._parameters.at(number)
        try:
            if parameter is not None and parameter.grad is not None:
                self._take(number, local(parameter.grad), start)
        except Exception as error:  # noqa: BLE001 # training goes on without us
            self.agent.fail(self.name, error)
        cost.spent("tiles", thread_time_ns() - used)

    def _take(self, number: int, gradient: torch.Tensor, time: int) -> None:
        if gradient.numel() == 0 or gradient.layout is not torch.strided:
            return
        with torch.no_grad():
            cells, counts = tiles.pooled(gradient), tiles.histogram(gradient)
        height, width = cells.shape
        row = (self.agent.progress.step, time, number, height, width, Reading(cells.flatten()), Reading(counts))
        self._taken.append(row)

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Writes those that have reached the host."""
        if self.agent.progress.holding and not final:
            return
        while self._taken and self._taken[0][5].done() and self._taken[0][6].done():
            step, time, number, height, width, cells, counts = self._taken.popleft()
            step = step if step != HELD else self.agent.progress.place(time)
            row = (step, number, height, width, cells.values(), [int(count) for count in counts.values()])
            self.agent.recorder.add("gradient_tiles", row)
