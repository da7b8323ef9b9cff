# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the parameters that DDP reduces belong to models that are still trained.

A program that trains one model after another may keep the first, with the gradients that its last backward left. Where there are several
DDP models, those count of which an optimizer has at least one parameter; all, where no optimizer has any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from dtscope_jupyter.agent.parameters import Parameters
    from dtscope_jupyter.agent.steps import Steps


class Trained:
    """Reckoned anew where models or optimizers have come or gone."""

    def __init__(self, parameters: Parameters, steps: Steps) -> None:
        """No model is known yet."""
        self._parameters = parameters
        self._steps = steps
        self._seen: list[Any] = []
        self._left_out: frozenset[int] = frozenset()

    def bucketed(self) -> list[torch.Tensor]:
        """Those that DDP reduces, of models that are trained."""
        wrapped = self._parameters.wrapped
        if len(wrapped) > 1:
            groups = [group["params"] for optimizer in self._steps.optimizers for group in optimizer.param_groups]
            seen = [len(wrapped), *((id(group), len(group)) for group in groups)]
            if seen != self._seen:
                self._seen, self._left_out = seen, self._untrained(groups)
        return self._parameters.bucketed(self._left_out)

    def _untrained(self, groups: list[list[torch.Tensor]]) -> frozenset[int]:
        numbers = {self._parameters.number(parameter) for group in groups for parameter in group}
        wrapped = self._parameters.wrapped
        live = [model for model in wrapped if not numbers.isdisjoint(model)]
        return frozenset().union(*wrapped).difference(*live) if live else frozenset()
