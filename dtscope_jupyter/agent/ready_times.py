# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""When DDP's gradients on a device were ready, as its reducer has noted in C++: no hook takes the interpreter's lock.

The reducer counts from the last forward's end (`Reducer::prepare_for_backward`); one parameter with a hook of ours tells when that was.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel


class ReadyTimes:
    """The parameters of one DDP model, in its reducer's order."""

    def __init__(self, model: DistributedDataParallel, parameters: list[torch.Tensor]) -> None:
        """The first parameter is the one with a hook, since it is ready in every backward of most models."""
        self._model = weakref.ref(model)
        self._ids = [id(parameter) for parameter in parameters]
        self.told = set(self._ids[1:])

    @classmethod
    def of(cls, model: DistributedDataParallel) -> ReadyTimes | None:
        """None where hooks have to tell: on a CPU, or where this torch's reducer keeps no times."""
        try:
            parameters = list(model._build_params_for_reducer()[0])  # noqa: SLF001
            times = model.reducer.get_backward_stats()
        except (AttributeError, RuntimeError, TypeError):
            return None
        if len(times) != len(parameters) or not all(parameter.is_cuda for parameter in parameters):
            return None
        return cls(model, parameters)

    def fill(self, ready: list[int], numbers: dict[int, int]) -> None:
        """Puts the times (ns, our clock) of the last backward where `numbers` says; none where the hooked parameter had none."""
        model, anchor = self._model(), numbers.get(self._ids[0])
        if model is None or anchor is None or not ready[anchor]:
            return
        times = model.reducer.get_backward_stats()
        begun = ready[anchor] - times[0]
        for identity, time in zip(self._ids, times, strict=True):
            number = numbers.get(identity)
            if number is not None and time > 0:
                ready[number] = begun + time
