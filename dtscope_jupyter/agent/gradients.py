# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients: when each is ready, its norm before and after the average over ranks, and what of it is not finite.

Ready times and one flat norm of all synchronised gradients come with every step, norms of single parameters as often as
the budget allows. Nothing here adds a collective, gathers a parameter or moves a random number. Under DDP local norms
are taken in the bucket hook and synchronised ones as the backward returns; elsewhere as it returns and as the
optimizer begins. Of a sharded parameter only this rank's part is looked at, of a sparse gradient the values it stores.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch

from dtscope_jupyter.agent import capture, readings
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.gradient_rows import GradientRows, Norms, Part
from dtscope_jupyter.agent.parameters import Parameters, local
from dtscope_jupyter.agent.progress import HELD
from dtscope_jupyter.agent.steady import BACKWARD
from dtscope_jupyter.agent.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.bucket import Bucket
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.steps import Steps

_LESSONS = 40
"""Backwards after which no bucket changes."""
_FINAL_LESSONS = 4
_ALERT_STEPS = 20
_MOST = 4096
_GLANCE = 4096
_PLAIN = {torch.float32, torch.float64}


class Gradients(Collector):
    """The gradients of the rank's models."""

    name = "gradients"

    def __init__(self, agent: Agent, steps: Steps) -> None:
        """Hooks come with the models."""
        super().__init__(agent)
        self.parameters = Parameters(agent.recorder)
        self._steps = steps
        self._trained = Trained(self.parameters, steps)
        self._rows = GradientRows(agent, steps)
        self._cost = agent.cost
        self._part = Part()
        self._parts: deque[Part] = deque(maxlen=_MOST)
        self._buffers: list[torch.Tensor] = []
        self._reduced = self._sparse = self._told = self._unseen = False
        self._alert = 0
        self._lessons = self._final = 0
        self._since = 0
        self._flats: tuple[list[Callable[[], torch.Tensor | None]], ...] = ([], [])
        self._missed: list[Callable[[], torch.nn.Module | None]] = []
        steady = agent.progress.steady
        steady.before_enter.append(self._may_repeat)
        steady.on_leave.append(self._left)
        steady.norm = self._steady_norm
        steps.on_norm.append(self._look_at)

    def backward_begins(self) -> None:
        """Stamps come by hooks on the parameters, which are there in the steps that have them."""
        if not self.on:
            return
        missed, self._missed = self._missed, []
        for reference in missed:
            if (model := reference()) is not None:
                self.model_found(model)
        self.parameters.listen(on=self._cost.stamps)

    def quiet(self) -> bool:
        """Whether no bucket is looked at in this step; the flat norm is that of the gradients then."""
        if self._alert or self._cost.sampled:
            return not self.on
        return self._final >= _FINAL_LESSONS or self._lessons > _LESSONS or not self.on

    def goes_quiet(self) -> bool:
        """`quiet` of the backward that begins, which the writing thread may not change on the way."""
        self._unseen = self.quiet()
        return self._unseen

    def _may_repeat(self) -> bool:
        """Whether the next steps need no more than their flat norm; of what, is known from here on."""
        if not self.on:
            return True
        if self._alert or self._sparse or not self.quiet():
            return False
        optimizer = self._steps.last_optimizer()
        groups = () if optimizer is None else optimizer.param_groups
        rest = [p for group in groups for p in group["params"] if not self.parameters.in_bucket(p)]
        if not all(type(p.grad) is torch.Tensor and p.grad.layout is torch.strided for p in rest if p.grad is not None):
            return False
        self._flats = [weakref.ref(p) for p in self._trained.bucketed()], [weakref.ref(p) for p in rest]
        return True

    def _left(self, at: int) -> None:
        self._unseen = at == BACKWARD
        self._since = self.agent.progress.last_end
        self._keep(self.agent.progress.steady.squares)

    def _steady_norm(self, part: int) -> list[torch.Tensor]:
        """Squares of the flat norm of what DDP has synchronised (part 0), of the rest (1)."""
        if not self._flats[part] or not self.on:
            return []
        start = time.thread_time_ns() if self._cost.measuring else 0
        gradients = [p.grad for reference in self._flats[part] if (p := reference()) is not None and p.grad is not None]
        try:
            parts = readings.squares(gradients)
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
            return []
        if start:
            self._cost.spent("flat_norm", time.thread_time_ns() - start)
        return parts

    def _look_at(self, norm: float) -> None:
        """What is not finite puts the next steps under a closer look."""
        if not math.isfinite(norm):
            self._be_alert()

    def _be_alert(self) -> None:
        self._alert = _ALERT_STEPS
        self.agent.progress.steady.expire()

    def start(self) -> None:
        """Of a step that recording was stopped in nothing is left."""
        self._part, self._buffers = Part(), []
        self._reduced = self._unseen = False

    def stop(self) -> None:
        """Takes the hooks off the parameters."""
        self.parameters.release()

    def model_found(self, model: torch.nn.Module) -> None:
        """Numbers its parameters and hangs the hooks on; of one found while recording stops, as it goes on."""
        if not self.on:
            self._missed.append(weakref.ref(model))
            return
        self.parameters.add(model)
        self._lessons = self._final = 0

    def bucket(self, bucket: Bucket) -> None:
        """DDP has filled a bucket and is about to reduce it."""
        if not self.on or (bucket.buffer.is_cuda and capture.here()):
            return
        self._reduced = True
        buffer = bucket.buffer
        self._learn(bucket)
        self._sparse |= buffer.is_sparse
        if self._local_due(lambda: [buffer]) or (not buffer.is_cuda and not buffer.is_sparse and _spoilt(buffer)):
            views, members = bucket.gradients(), bucket.parameters or []
            self._timed("local_norm", lambda: self._measure(self._part.locals, members, views, count=True, scale=bucket.scale), buffer)
        if bucket.in_place and not buffer.is_sparse:
            self._buffers.append(buffer)

    def glance(self, gradient: torch.Tensor, parameter: torch.Tensor | None) -> None:
        """A look at the last bucket: what spoils a rank's forward spoils the gradients of its first layers too.

        On a device a few thousand values of that bucket; on a CPU the gradient of the `parameter` that is ready last, in which
        something was found that is not finite.
        """
        if not self.on or not torch.is_floating_point(gradient) or gradient.layout is not torch.strided:
            return
        if gradient.is_cuda and capture.here():
            return
        if gradient.is_cuda:
            self._part.glances.append(readings.Reading(gradient[:_GLANCE].sum(dtype=torch.float32).reshape(1)))
        elif parameter is not None:
            self._be_alert()
            self._measure(self._part.locals, [parameter], [gradient], count=True)

    def after_backward(self) -> None:
        """DDP's gradients are synchronised now; others are local, or sharded and done."""
        if not self.on or capture.here():
            return
        unseen, self._unseen = self._unseen, False
        if unseen or self.quiet():
            self._reduced, self._buffers = False, []
            if self._cost.due("flat_norm"):
                self._part.flat.clear()
                self._flat_norm([], self._trained.bucketed())
            return
        if self._reduced:
            self._reduced = False
            self._synchronised(self._trained.bucketed())
        loose = self.parameters.loose()
        if loose and self._local_due(lambda: _gradients(loose)[1]):
            self._timed("local_norm", lambda: self._measure(self._part.locals, loose, None, count=True), *_gradients(loose)[1])

    def _local_due(self, tensors: Callable[[], list[torch.Tensor]]) -> bool:
        """Whether each parameter is measured: by the plan, or since a cheap look at the whole found what is not finite."""
        if self._alert or self._cost.due("local_norm"):
            return True
        if not self._cost.due("local_check"):
            return False
        looked: list[torch.Tensor] = tensors()
        if not looked:
            return False
        found: list[float] = []
        self._timed("local_check", lambda: found.extend(self._check(looked)), *looked)
        return not all(map(math.isfinite, found))

    def _check(self, tensors: list[torch.Tensor]) -> list[float]:
        _, tensors = self._readable(tensors, tensors)
        if not tensors:
            return []
        norms = readings.norms(tensors)
        if norms.is_cuda:
            self._part.checks.append(readings.Reading(norms))
            return []
        return [float(norms.sum())]

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Gradients of what is in no bucket are as synchronised as they get."""
        if not self.on or not (self._alert or self._cost.sampled or self._cost.due("flat_norm")) or capture.here():
            return
        rest = [p for group in optimizer.param_groups for p in group["params"] if not self.parameters.in_bucket(p)]
        if rest:
            self._synchronised(rest)

    def loose(self) -> list[torch.Tensor]:
        """Gradients that no DDP reduces; for a rehearsal."""
        return _gradients(self.parameters.loose())[1]

    def spoil(self) -> None:
        """Makes the synchronised gradients of DDP models other than those of the other ranks; for a rehearsal."""
        reduced = map(readings.stored, (*self._buffers, *_gradients(self.parameters.bucketed())[1]))
        for tensor in {t.data_ptr(): t for t in reduced}.values():
            tensor.mul_(1.5)

    def _synchronised(self, parameters: list[torch.Tensor]) -> None:
        buffers, self._buffers = self._buffers, []
        if self._alert or self._cost.due("synced_norm"):
            self._timed("synced_norm", lambda: self._measure(self._part.synced, parameters, None, count=False), *buffers)
        if self._cost.due("flat_norm"):
            self._flat_norm(buffers, parameters)

    def _flat_norm(self, buffers: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
        tensors = buffers
        if self._sparse or not buffers:
            tensors = buffers + [g for g in _gradients(parameters)[1] if g.is_sparse or not buffers]
        self._timed("flat_norm", lambda: self._flat(tensors), *tensors)

    def _flat(self, tensors: list[torch.Tensor]) -> None:
        _, tensors = self._readable(tensors, tensors)
        if tensors:
            self._keep(readings.squares(tensors))

    def _keep(self, squares: list[torch.Tensor]) -> None:
        """Of the flat norm."""
        if squares:
            self._part.flat.append(readings.Reading(squares[0] if squares[0].dim() else torch.stack(squares)))

    def _measure(
        self, into: list[Norms], parameters: list[torch.Tensor], gradients: list[torch.Tensor] | None, *, count: bool, scale: float = 1.0
    ) -> None:
        if gradients is None:
            parameters, gradients = _gradients(parameters)
        if len(gradients) != len(parameters):
            return
        parameters, gradients = self._readable(parameters, gradients)
        if not gradients:
            return
        numbers = [self.parameters.number(parameter) for parameter in parameters]
        norms = readings.norms(gradients)
        counts = None
        if count and (self._alert or (not norms.is_cuda and not math.isfinite(float(norms.sum())))):
            counts = readings.Reading(readings.nonfinite(gradients))
        into.append(Norms(numbers, readings.Reading(norms), counts, scale))

    def _readable(self, parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What can be read of the gradients, and the parameters it is of; of what can't, a note says so once."""
        if all(gradient.layout is torch.strided for gradient in gradients):
            return parameters, gradients
        pairs = [(parameter, readings.held(gradient)) for parameter, gradient in zip(parameters, gradients, strict=True)]
        readable = [(parameter, values) for parameter, values in pairs if values is not None]
        if len(readable) < len(pairs) and not self._told:
            self._told = True
            self.agent.recorder.note("collector", self.name, text="sparse gradients on a device are left out: reading them makes it wait")
        return [parameter for parameter, _ in readable], [values for _, values in readable]

    def _learn(self, bucket: Bucket) -> None:
        """Which parameters lie in it, while that still changes."""
        if bucket.parameters is None or self._lessons > _LESSONS or self._final > _FINAL_LESSONS:
            return
        self._lessons += bucket.index == 0
        self._final += bucket.index == 0 and bucket.final
        self.parameters.final = bucket.final
        for parameter in bucket.parameters:
            number = self.parameters.number(parameter)
            if number is not None:
                self.parameters.buckets[number] = bucket.index

    def _timed(self, name: str, call: Callable[[], None], *reads: torch.Tensor) -> None:
        start = time.thread_time_ns()
        try:
            call()
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
        self._cost.spent(name, time.thread_time_ns() - start, sum(tensor.nbytes for tensor in reads if tensor.is_cuda))

    def settled(self, step: int) -> bool:
        """Whether all that the step left has reached the host."""
        first = self._parts[0].step if self._parts else step + 1
        return step < first and first != HELD and not self._rows.gathers(step)

    def before_close(self, end: int) -> None:
        """A part of a step ends: what it left goes to the writing thread."""
        part, since, self._since = self._part, self._since, end
        if not (self._cost.sampled or self._alert or part.flat or part.locals or part.synced or part.checks or part.glances):
            return
        self._part = Part()
        part.step, part.time = self.agent.progress.step, end
        ready = self.parameters.take(wanted=self._cost.sampled)
        part.ready = [time if time > since else 0 for time in ready] if self._cost.sampled else []
        if len(self._parts) == _MOST:
            self.agent.recorder.drop("gradients", len(ready))
        self._parts.append(part)
        self._alert = max(self._alert - 1, 0)

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Writes the steps that are whole; what is not finite puts the next steps under a closer look."""
        self.parameters.write(final=final)
        if self.agent.progress.holding and not final:
            return
        if self._rows.take(self._parts, final=final):
            self._be_alert()


def _spoilt(tensor: torch.Tensor) -> bool:
    """Whether something among the first values, on a CPU, is not finite; numpy has gone less cold by then than torch."""
    if type(tensor) is torch.Tensor and tensor.dtype in _PLAIN and tensor.is_contiguous() and not tensor.requires_grad:
        return not np.isfinite(tensor.numpy().reshape(-1)[:_GLANCE]).all()
    with torch.no_grad():
        return not math.isfinite(float(tensor.reshape(-1)[:_GLANCE].sum(dtype=torch.float32)))


def _gradients(parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The parameters that have a gradient, and what this rank holds of these."""
    having = [parameter for parameter in parameters if parameter.grad is not None]
    return having, [local(parameter.grad) for parameter in having if parameter.grad is not None]
