# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Every collective, send and receive that Python issues: at the methods of ProcessGroup and at Work.wait.

These are what all of torch.distributed, FSDP2 and a user's comm hook end in, whatever name the program
imported. Operations that C++ issues are seen elsewhere: DDP's buckets in `buckets`, functional ones in
`functional`; DDP's own set-up is not seen.
"""

from __future__ import annotations

import time
from collections import deque
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Work

from dtscope_jupyter.agent import capture, lines
from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.counted import Backward, Call, Counted
from dtscope_jupyter.agent.device_times import DeviceTimes
from dtscope_jupyter.agent.final_wait import FinalWait
from dtscope_jupyter.agent.groups import P2P, Groups, sequence
from dtscope_jupyter.agent.host_wait import HostWait
from dtscope_jupyter.agent.operation import Operation
from dtscope_jupyter.agent.operations import METHODS, Method
from dtscope_jupyter.agent.patches import Patches
from dtscope_jupyter.agent.progress import HELD
from dtscope_jupyter.agent.steady import BACKWARD
from dtscope_jupyter.agent.stream_waits import StreamWaits
from dtscope_jupyter.agent.waits import Waits
from dtscope_jupyter.agent.works import Works, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.faults import Faults
    from dtscope_jupyter.agent.groups import Group
    from dtscope_jupyter.agent.layout import Kind
    from dtscope_jupyter.agent.overlap import Overlap

_ANNOUNCE_NS = 10**9
_MOST_PENDING = 16_384
_LAST_ENDS_NS = 100_000_000
_UNSEEN = object()
_DEVICES = torch.backends.cuda.is_built()


class Collectives(Collector):
    """The collectives of the rank and the intervals in which the training thread waits for them."""

    name = "collectives"

    def __init__(self, agent: Agent, overlap: Overlap, faults: Faults | None = None) -> None:
        """Hooks come with `start`."""
        super().__init__(agent)
        self.groups = Groups(agent.recorder)
        self._bucket: int | None = None
        self._bucket_line: str | None = None
        self._in_bucket: list[Operation] = []
        self._faults = faults
        self._progress = agent.progress
        self._overlap = overlap
        self.timed, self.counting = True, False
        self._measuring = False
        self._open_step = 0
        self.counted = Counted()
        self._devices = DeviceTimes()
        self.final_wait = FinalWait(agent, self._devices)
        self.host_wait = HostWait(agent.progress)
        self._streams = StreamWaits(self._devices, agent.progress)
        self._patches = Patches()
        self._pending: deque[Operation] = deque()
        self.waits = Waits(agent, overlap)
        self.works = Works()
        self._progress.steady.host_wait = self.host_wait
        self._progress.steady.on_leave.append(self._left)

    def start(self) -> None:
        """Installs the hooks."""
        for name, method in METHODS.items():
            self._patches.wrap(ProcessGroup, name, self._wrapper(name, method))
        self._patches.wrap(Work, "wait", self._wait_wrapper)
        if torch.version.cuda is not None:
            capture.watch(self._patches, torch.cuda.CUDAGraph)
            self._streams.install(self._patches)

    def stop(self) -> None:
        """Takes the hooks off."""
        self._patches.undo()

    def settle(self) -> None:
        """Lets the runtime's threads tell of the last ends."""
        deadline = now() + _LAST_ENDS_NS
        while now() < deadline and not all(operation.end or operation.failed for operation in tuple(self._pending)):
            time.sleep(0.002)

    def backward_begins(self) -> None:
        """On the training thread."""
        if _DEVICES and torch.cuda.is_initialized():
            self._devices.backward_begins()
            self.final_wait.backward_begins()

    def step_closed(self, step: int) -> None:
        """Whether the next step's buckets, and on a device all operations, are timed one by one, or no more than counted (`counting`)."""
        for operation in self.counted.close(step, waited=self._has_waited(step)):
            operation.end = now()
            self._pending.append(operation)
        cost, self._open_step = self.agent.cost, self._progress.step
        self.timed, self._measuring = cost.sampled, cost.measuring or cost.timing
        self._streams.on = self.timed and cost.on_device
        self.counting = self._faults is None and not (self.timed or self._progress.by_calls or self._progress.holding)

    def _left(self, at: int) -> None:
        """The step under way is seen as ever from here on."""
        self._open_step = self._progress.step
        if at >= BACKWARD:
            self.counted.backwards += self._progress.steady.backwards()
        if at > BACKWARD:
            self.counted.over()

    def _has_waited(self, step: int) -> bool:
        """Whether the end of its DDP backward was seen."""
        return step in (self.final_wait.step, self.host_wait.step)

    def settled(self, step: int) -> bool:
        """Whether all waits of a device in the step are known."""
        return not self.agent.cost.on_device or (step < self._open_step and self.final_wait.settled(step) and self._streams.settled(step))

    def expect_buckets(self, group: Group, number: Callable[[], int], kinds: list[Kind]) -> None:
        """A backward begins of which only the end will be seen; `number` tells the runtime's last, `kinds` are those of DDP's buckets."""
        self.counted.backwards.append(Backward(self._progress.step, group, kinds, number, number(), now()))

    def buckets_over(self) -> None:
        """A backward has returned, so that on a CPU none of its buckets is in flight."""
        if not self.agent.cost.on_device:
            self.counted.over()

    def _count(self, method: Method, group: Any, args: tuple[Any, ...]) -> bool:
        """Counts an operation on a device in a step that is not timed; False for any other."""
        progress = self.agent.progress
        if not self.counting:
            return False
        known = self.groups.of(group)
        message = method.read(args, known.size)
        tensor = message.tensor
        if tensor is None or not tensor.is_cuda or method.operation in P2P:
            return False
        seq = sequence(method.operation, known, group)
        shape = None if tensor.is_sparse else tensor.shape
        kind = message.bytes, tensor.dtype, shape, self._bucket
        self.counted.add(Call(progress.step, method.operation, known, *kind, progress.phase, seq, now()))
        return True

    def open(self, name: str, method: Method, group: Any, args: tuple[Any, ...]) -> Operation:
        """An operation is about to be issued; the caller issues it and calls `issued` or `cancel`."""
        progress = self.agent.progress
        used, begun = self._clock(), now()
        line, sharded = lines.caller() if not self._bucket else (self._bucket_line, False)
        known = self.groups.of(group)
        message = method.read(args, known.size)
        if self._bucket is None:
            progress.collective(f"{name} {message.bytes}", line, begun)
        phase = progress.phase or ("forward" if sharded else None)
        operation = Operation(name, known, message, progress.step, phase, begun)
        operation.bucket, operation.line, operation.seq = self._bucket, line, sequence(name, known, group)
        if self._bucket is not None:
            self._bucket_line = line
            self._in_bucket.append(operation)
        self._pending.append(operation)
        if len(self._pending) > _MOST_PENDING:
            self._pending.popleft()
            self.agent.recorder.drop("collectives", 1)
        if operation.device is not None and operation.device.type == "cuda":
            self._devices.begin(operation)
        operation.enqueue = operation.start = now()
        self._spent(operation, used)
        return operation

    def _clock(self) -> int:
        """CPU time of this thread, in the steps in which it is asked for."""
        return thread_time_ns() if self._measuring else 0

    def _spent(self, operation: Operation, begun: int) -> None:
        if not begun:
            return
        if operation.events is None and operation.bucket is None:
            self.agent.cost.fixed(thread_time_ns() - begun)
        elif self.agent.cost.timing:
            self.agent.cost.spent("events", thread_time_ns() - begun)

    def cancel(self, operation: Operation) -> None:
        """The call raised: nothing was issued."""
        operation.failed = operation.raised = True

    def issued(self, operation: Operation, work: Any, *, asynchronous: bool, tensors: Any = None) -> None:
        """The call returned `work`, or None where the runtime has waited itself; `tensors` are its arguments."""
        operation.asynchronous = asynchronous
        used, operation.returned = self._clock(), now()
        if operation.events is not None:
            self._devices.issued(operation, work, tensors)
        elif work is None:
            operation.end = operation.returned
            self.waits.add(operation.enqueue, operation.end, operation)
        elif asynchronous:
            follow(operation, work)
            self._rehearse(operation, work)
        if work is not None:
            self.works.add(work, operation)
        self.agent.progress.collective_over(now())
        self._spent(operation, used)

    def enter_bucket(self, index: int) -> None:
        """What is issued until `leave_bucket` belongs to this bucket."""
        self._bucket = index

    def leave_bucket(self) -> list[Operation]:
        """What was issued for the bucket."""
        self._bucket = None
        issued, self._in_bucket = self._in_bucket, []
        return issued

    def _wrapper(self, name: str, method: Method) -> Callable[[Any], Callable[..., Any]]:
        def make(original: Any) -> Callable[..., Any]:
            def call(group: Any, *args: Any, **kwargs: Any) -> Any:
                if not self.on:
                    return original(group, *args, **kwargs)
                if self._faults is not None:
                    self._faults.before_issue(method.operation, group)
                operation = self._try_open(method, group, args or tuple(kwargs.values()))
                if operation is None:
                    return original(group, *args, **kwargs)
                try:
                    work = original(group, *args, **kwargs)
                except BaseException:
                    self.cancel(operation)
                    raise
                self._try_issued(operation, work, args, kwargs)
                return work

            # pybind11 calls the C++ base of a Python subclass only from a function of the method's name, else ours again
            call.__code__ = call.__code__.replace(co_name=name)
            return call

        return make

    def _try_open(self, method: Method, group: Any, args: tuple[Any, ...]) -> Operation | None:
        try:
            operation = None if self._count(method, group, args) else self.open(method.operation, method, group, args)
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
            return None
        return operation

    def _try_issued(self, operation: Operation, work: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            options = kwargs.get("opts") or (args[-1] if args else None)
            asynchronous = operation.name in P2P or bool(getattr(options, "asyncOp", True))
            self.issued(operation, work, asynchronous=asynchronous, tensors=args)
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)

    def _wait_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            operation = self.works.pop(work)
            if operation is None:
                return original(work, *args, **kwargs)
            start = self._wait_begins(operation)
            try:
                result = original(work, *args, **kwargs)  # from a function of this name, as in _wrapper
            except RuntimeError:
                operation.raised = True
                raise
            self._wait_ended(operation, start)
            return result

        return wait

    def wait_for(self, operation: Operation, wait: Callable[[], Any]) -> Any:
        """Calls `wait`, in which the caller waits for the operation, and notes how long."""
        start = self._wait_begins(operation)
        result = wait()
        self._wait_ended(operation, start)
        return result

    def _wait_begins(self, operation: Operation) -> int:
        if operation.events is not None:
            self._devices.wait_begins(operation)
        return now()

    def _wait_ended(self, operation: Operation, start: int) -> None:
        if not operation.asynchronous and (delay := self._delay_s(operation)):
            time.sleep(delay)
        end = now()
        self.agent.progress.collective_over(end)
        self._waited(operation, start, end)

    def functional(self, operation: Operation, *, ended: bool) -> None:
        """C++ has issued it and keeps the Work; `ended` where it has waited as well."""
        operation.asynchronous, operation.source, operation.returned = not ended, "host", now()
        self.agent.progress.collective_over(operation.returned)
        if operation.events is not None:
            self._devices.issued(operation, None if ended else _UNSEEN)
        elif ended:
            operation.end = operation.returned
            self.waits.add(operation.enqueue, operation.end, operation)

    def _rehearse(self, operation: Operation, work: Any) -> None:
        """A slow link, as asked for: the call itself takes as long, since C++ waits for its own futures only."""
        delay = self._delay_s(operation) if operation.name not in P2P else 0.0
        if delay:
            operation.end = now() + int(delay * 1e9)
            work.wait()
            time.sleep(delay)
            operation.end = now()
            self.waits.add(operation.enqueue, operation.end, operation)

    def _delay_s(self, operation: Operation) -> float:
        return self._faults.delay_s(operation.group.ranks) if self._faults is not None else 0.0

    def _waited(self, operation: Operation, start: int, end: int) -> None:
        if operation.events is not None:
            self._devices.wait_ended(operation)
            return
        if not operation.end:
            operation.end = end
        self.waits.add(start if operation.asynchronous else operation.enqueue, end, operation)

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Writes what has ended; what is still in flight after a second once, as scheduled, and again when it ends."""
        if self.agent.progress.holding and not final:
            return
        seen = now()
        self.counted.backwards += self._progress.steady.stuck(seen if final else seen - _ANNOUNCE_NS // 2)
        if final:
            self.counted.break_off(self._open_step, waited=self._has_waited(self._open_step))
        self._drain_devices(seen, final=final)
        self.waits.drain()
        later, oldest = [], 0
        for _ in range(len(self._pending)):
            operation = self._pending.popleft()
            if not self._settle(operation, seen, final=final):
                later.append(operation)
                oldest = oldest or operation.enqueue
        self._pending.extendleft(reversed(later))
        self._overlap.oldest_open = oldest

    def _drain_devices(self, seen: int, *, final: bool) -> None:
        for start, end, operation in self._devices.resolve():
            self.waits.add(start, end, operation)
        for step, start, end in self._streams.resolve():
            self.waits.row(step, start, end, "stream", None)
        for step, start, end in self.final_wait.resolve() + self.host_wait.resolve():
            self._overlap.communicates(step, start, end)
            self.waits.row(step, start, end, "all_reduce", None)
        if not (final and self.agent.cost.on_device):
            patience = 0 if final else _ANNOUNCE_NS
            for operation in self.counted.overdue(seen, patience, self.final_wait.waiting, self.groups.by_name()):
                self.agent.recorder.add("collectives", operation.row(operation.step))

    def _settle(self, operation: Operation, seen: int, *, final: bool) -> bool:
        if operation.raised:
            operation.raised = False
            text = f"{operation.name} of process group {operation.group.name} raised an error"
            self.agent.recorder.note("warning", "collective_failed", 1.0, text, operation.step if operation.step != HELD else None)
        if operation.failed:
            return True
        if operation.announced and operation.end and operation.events is not None and operation.group.broken():
            return True
        step = operation.step if operation.step != HELD else self.agent.progress.place(operation.enqueue)
        if operation.end:
            self._overlap.communicates(step, operation.start, operation.end)
        elif not final and (operation.announced or seen - operation.enqueue < _ANNOUNCE_NS):
            return False
        operation.announced = True
        self.agent.recorder.add("collectives", operation.row(step))
        return operation.end > 0 or final
