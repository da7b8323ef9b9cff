# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Sees backwards and optimizer steps, tells `Progress` of them, and writes `steps`.

Backwards are seen at torch.autograd's engine call, optimizer steps at the global optimizer hooks (outermost
counted), skipped ones at GradScaler.step.
"""

from __future__ import annotations

import math
import sys
import weakref
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dtscope_jupyter.agent import memory
from dtscope_jupyter.agent.clock import OFFSET_NS, now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.evidence import Evidence
from dtscope_jupyter.agent.overlap import Overlap
from dtscope_jupyter.agent.patches import Patches
from dtscope_jupyter.agent.progress import Segment
from dtscope_jupyter.agent.steady import BACKWARD, OFF, OPTIMIZER, Marks

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.steady import Expected


_PATIENCE_NS = 10**9
_DEVICES = torch.backends.cuda.is_built()


class Steps(Collector):
    """The steps of the rank; other collectors hang on its boundaries (`on_backward`, `after_backward`, `before_optimizer`, `on_close`)."""

    name = "steps"

    def __init__(self, agent: Agent) -> None:
        """Hooks come with `start`."""
        super().__init__(agent)
        self._cost, self._progress, self._steady = agent.cost, agent.progress, agent.progress.steady
        self.overlap = Overlap()
        self.disturbed: set[int] = set()
        self.norms: dict[int, float] = {}
        self.nonfinite: dict[int, int] = {}
        self.on_backward: list[Callable[[], None]] = []
        self.after_backward: list[Callable[[], None]] = []
        self.before_optimizer: list[Callable[[torch.optim.Optimizer], None]] = []
        self.on_close: list[Callable[[int], None]] = []
        self.on_optimizer: list[Callable[[torch.optim.Optimizer], None]] = []
        self.untimed: dict[int, bool] = {}
        self.gates: list[Callable[[int], bool]] = []
        self._evidence = Evidence()
        self._memory = memory.Memory()
        self._usage: tuple[int | None, int | None, int | None] | None = None
        self._patches = Patches()
        self._handles: list[Any] = []
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._depth = 0
        self._outer: FrameType | None = None
        self._nested = 0
        self._optimizer_start = 0
        self._ends = 0
        self.last_optimizer: Callable[[], torch.optim.Optimizer | None] = lambda: None
        self._waiting: list[tuple[int, Segment]] = []
        self.expected: Callable[[], list[Expected] | None] = list
        self.on_norm: list[Callable[[float], None]] = []
        self._steady.on_leave.append(self._left)

    def start(self) -> None:
        """Installs the hooks."""
        self._patches.wrap(torch.autograd, "_engine_run_backward", self._backward_wrapper)
        self._patches.wrap(torch.optim.Optimizer, "__init__", self._init_wrapper)
        self._patches.wrap(torch.amp.GradScaler, "step", self._scaler_wrapper)
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def stop(self) -> None:
        """Takes the hooks off."""
        self._steady.expire()
        self._patches.undo()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def knows(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer exists."""
        unknown = optimizer not in self._optimizers
        self._optimizers.add(optimizer)
        self.agent.progress.optimizers_alive = len(self._optimizers)
        if unknown:
            self._steady.expire()
            for call in self.on_optimizer:
                call(optimizer)

    @property
    def optimizers(self) -> weakref.WeakSet[torch.optim.Optimizer]:
        """Those that are known and alive."""
        return self._optimizers

    def sample(self, parameters: list[torch.Tensor]) -> None:
        """Parameters whose gradients tell where a step ends if no optimizer does."""
        self._evidence.watch(parameters)

    def _init_wrapper(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(optimizer, *args, **kwargs)
            self.knows(optimizer)
            self.agent.progress.sets_up(optimizer=True)

        return __init__

    def _backward_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if self._depth or not self.on or kwargs.get("accumulate_grad") is False:
                return original(*args, **kwargs)
            if not self._marked(self._steady.backward_begins):
                self._begin()
            self._depth = 1
            try:
                return original(*args, **kwargs)
            except BaseException:
                self._steady.leave()
                raise
            finally:
                self._depth = 0
                if not self._marked(self._steady.backward_ends):
                    self._end()

        return run

    def _marked(self, mark: Callable[..., bool], *args: Any) -> bool:
        """Whether a mark was enough, in steps like the ones before; one of them is timed."""
        if self._steady.at == OFF:
            return False
        try:
            return mark(*args) if not self._cost.measuring else self._cost.timed(mark, *args)
        except Exception as error:  # noqa: BLE001
            self._steady.drop()
            self.agent.fail(self.name, error)
            return False

    def _left(self, at: int) -> None:
        """What comes next is seen as ever."""
        if at == OPTIMIZER:
            self._nested, self._optimizer_start = 1, self._steady.optimizer_start
        if at > BACKWARD:
            self._evidence.forget()
        self._cost.passed(self._steady.ends)

    def _repeat(self, optimizer: torch.optim.Optimizer) -> None:
        """The steps to come may need no more than marks."""
        plain = self._cost.plain
        if not plain or self._nested or not self._progress.may_repeat(optimizer):
            return
        expected = self.expected()
        if expected is not None:
            self._steady.enter(self.last_optimizer, plain, self._cost.next("flat_norm"), expected)

    def _begin(self) -> None:
        cost, progress = self._cost, self._progress
        began = cost.began() if cost.measuring else 0
        try:
            if self._nested:
                self._forget_stale()
            for call in self.on_backward:
                call()
            reset, updated = self._evidence.since_last() if progress.accumulates and not self._nested else (False, False)
            step = progress.step
            if progress.backward_begins(now(), reset=reset, updated=updated):
                self._closed(step)
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
        if began:
            cost.hook(began)

    def _forget_stale(self) -> None:
        """An optimizer step that raised has no end."""
        if not _on_stack(self._outer):
            self._nested, self._outer = 0, None

    def _end(self) -> None:
        began = self._cost.began() if self._cost.measuring else 0
        try:
            self._progress.backward_ends(now())
            for call in self.after_backward:
                call()
            self._evidence.remember()
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
        if began:
            self._cost.hook(began)

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        began = self._cost.began() if self._cost.measuring else 0
        if self._marked(self._steady.optimizer_begins, optimizer):
            self._outer = sys._getframe(1)  # noqa: SLF001
            return
        try:
            if self._nested:
                self._forget_stale()
            self._nested += 1
            if self._nested > 1:
                return
            self._outer = sys._getframe(1)  # noqa: SLF001
            if self.last_optimizer() is not optimizer:
                self._steps_now(optimizer)
            for call in self.before_optimizer:
                call(optimizer)
            self._progress.phase = "optimizer"
            self._optimizer_start = now()
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
        if began:
            self._cost.hook(began)

    def _steps_now(self, optimizer: torch.optim.Optimizer) -> None:
        self.last_optimizer = weakref.ref(optimizer)
        if optimizer not in self._optimizers:
            self.knows(optimizer)
        self._progress.optimizers_alive = len(self._optimizers)

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._marked(self._steady.optimizer_ends):
            self._outer, self._ends = None, self._ends + 1
            self._cost.passes(len(self._steady.ends))
            return
        self._nested -= 1
        if self._nested > 0 or not self.on:
            return
        self._nested, self._outer = 0, None
        self._optimizer_ended(optimizer, self._optimizer_start)

    def _optimizer_ended(self, optimizer: torch.optim.Optimizer, start: int, *, skipped: bool = False) -> None:
        progress, cost = self._progress, self._cost
        began = cost.began() if cost.measuring else 0
        try:
            self._steady.leave()
            self._ends += 1
            step = progress.step
            progress.optimizer_ends(id(optimizer), start, now(), skipped=skipped)
            if progress.step != step:
                if began:
                    cost.hook(began)
                began = 0
                self._closed(step)
                self._repeat(optimizer)
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
        if began:
            cost.hook(began)

    def _closed(self, step: int) -> None:
        cost = self._cost
        if _DEVICES and not cost.on_device and torch.cuda.is_initialized():
            cost.begin_on_device()
            self.overlap.by_step = True
            self._memory.device = torch.cuda.current_device()
        began = cost.step_closed()
        for call in self.on_close:
            call(step)
        if began:
            cost.hook(began)

    def _scaler_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before, start = self._ends, now()
            result = original(scaler, optimizer, *args, **kwargs)
            if self._ends == before and self.on and scaler.is_enabled():
                self._optimizer_ended(optimizer, start, skipped=True)
            return result

        return step

    def collect(self, _final: bool) -> None:  # noqa: FBT001
        """Notes which steps have closed, before the other collectors turn their events into rows."""
        closed = self.agent.progress.closed
        for _ in range(len(closed)):
            step, seen = closed.popleft()
            self._waiting.append((step, self._segment(step, seen) if isinstance(seen, Marks) else seen))

    def _segment(self, step: int, marks: Marks) -> Segment:
        """What the marks of a step mean."""
        if marks.counted:
            self.untimed[step] = marks.waited
        if marks.squares:
            values = chain.from_iterable(squares.tolist() if squares.dim() else (squares.item(),) for squares in marks.squares)
            self.norms[step] = math.sqrt(sum(values))
            for call in self.on_norm:
                call(self.norms[step])
        backward, optimizer = (marks.backward_start, marks.backward_end), (marks.optimizer_start, marks.end)
        return Segment(marks.start, marks.end, *backward, *optimizer, 1, cpu_ns=marks.cpu_ns, delay_ns=marks.delay_ns)

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Writes the steps of which all is known, or for which it is too late to wait."""
        later = []
        self._usage = None
        for step, segment in self._waiting:
            late = final or now() - segment.end > _PATIENCE_NS
            if late or (self.overlap.settled(segment.end) and all(gate(step) for gate in self.gates)):
                self._write(step, segment)
            else:
                later.append((step, segment))
        self._waiting = later

    def _write(self, step: int, segment: Segment) -> None:
        row = self._row(step, segment)
        if "steps" in self.agent.config.collect:
            self.agent.recorder.add("steps", row)
        self.disturbed.discard(step - 1)

    def _row(self, step: int, segment: Segment) -> tuple[Any, ...]:
        self._usage = self._usage or self._memory.sample()
        host, allocated, reserved = self._usage
        times = (segment.start, segment.end, segment.backward_start, segment.backward_end, segment.optimizer_start, segment.optimizer_end)
        return (
            step,
            *(time + OFFSET_NS if time else None for time in times),
            *self._parts(step, segment),
            self.norms.pop(step, None),
            self.nonfinite.pop(step, None),
            segment.micro_batches,
            segment.skipped,
            host,
            allocated,
            reserved,
            step in self.disturbed,
            "event",
            segment.cpu_ns / 1e6 or None,
            None if segment.delay_ns is None else segment.delay_ns / 1e6,
        )

    def _parts(self, step: int, segment: Segment) -> tuple[float | None, ...]:
        """Of a step in which operations were only counted, what could be known."""
        compute, comm, overlap, exposed, waits = self.overlap.of(segment.start, segment.end, step)
        known = self.untimed.pop(step, None)
        if known is None:
            return compute, comm, overlap, exposed, waits
        return compute if known and not self.agent.cost.on_device else None, None, None, exposed if known else None, waits


def _on_stack(frame: FrameType | None) -> bool:
    at: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while at is not None:
        if at is frame:
            return True
        at = at.f_back
    return False
