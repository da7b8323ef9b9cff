# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on a device in steps that are not timed: counted, and kept only as long as their step may be stuck.

What of a stuck step is still in flight is what torch's Flight Recorder does not know as done.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dtscope_jupyter.agent import flight_recorder
from dtscope_jupyter.agent.operation import Operation
from dtscope_jupyter.agent.operations import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dtscope_jupyter.agent.groups import Group
    from dtscope_jupyter.agent.layout import Kind

_MOST = 16_384


class Call(NamedTuple):
    """One operation, without its tensors."""

    step: int
    name: str
    group: Group
    bytes: int
    dtype: Any
    shape: Any
    bucket: int | None
    phase: str | None
    seq: int
    begun: int

    def operation(self) -> Operation:
        """As it is written."""
        made = Operation(self.name, self.group, Message(None, self.bytes), self.step, self.phase, self.begun)
        made.dtype, made.shape, made.bucket, made.seq = self.dtype, self.shape, self.bucket, self.seq
        made.source = "host"
        return made


@dataclass(slots=True)
class Backward:
    """One in which DDP's buckets go by unseen: what has been issued is told by the group's sequence number, `first` as it began."""

    step: int
    group: Group
    kinds: list[Kind]
    number: Callable[[], int]
    first: int
    at: int
    _last: int = 0

    def issued(self) -> bool:
        """Whether the group has been used since."""
        try:
            return self.number() != self.first
        except RuntimeError:  # it is gone
            return False

    def calls(self, seen: int, others: set[int]) -> list[Call]:
        """The buckets so far, all as of the time at which the last one was first noticed; `others` are numbers of other calls."""
        try:
            last = self.number()
        except RuntimeError:  # the group is gone
            return []
        if last > max(self._last, self.first):
            self.at = seen if self._last else self.at
            self._last = last
        numbers = [seq for seq in range(self.first + 1, last + 1) if seq not in others]
        return [
            Call(self.step, "all_reduce", self.group, *kind, bucket, "backward", seq, self.at)
            for bucket, (seq, kind) in enumerate(zip(numbers, self.kinds, strict=False))
        ]


class Counted:
    """The calls of the open step, and what each closed step of such calls leaves unknown."""

    def __init__(self) -> None:
        """No call yet."""
        self.calls: deque[Call] = deque(maxlen=_MOST)
        self.backwards: deque[Backward] = deque(maxlen=_MOST)
        self.announced: list[Operation] = []
        self.closed: dict[int, bool] = {}
        self._others = self._over = False

    def add(self, call: Call) -> None:
        """A call is about to be issued."""
        self._others |= call.bucket is None
        self.calls.append(call)

    def over(self) -> None:
        """The host has waited for the buckets that were expected: none is in flight."""
        if self.backwards:
            for backward in self.backwards:
                self._over = self._over or backward.issued()
            self.backwards.clear()

    def break_off(self, step: int, *, waited: bool) -> None:
        """No more comes of the step: notes in `closed` whether it issued nothing but DDP's buckets, `waited` for."""
        if self.calls or self.backwards or self._over:
            self.closed[step] = waited and not self._others

    def close(self, step: int, *, waited: bool) -> list[Operation]:
        """The step has ended; returns what had been announced of it."""
        self.break_off(step, waited=waited)
        while len(self.closed) > _MOST:
            self.closed.pop(next(iter(self.closed)))
        self.calls.clear()
        self.backwards.clear()
        self._others = self._over = False
        announced, self.announced = self.announced, []
        return announced

    def overdue(
        self, seen: int, patience: int, waiting: tuple[int, int] | None = None, known: Mapping[str, Group] = MappingProxyType({})
    ) -> list[Operation]:
        """What is in flight although the step's last call is older than `patience` ns; once a step.

        `waiting`: step and time of the oldest final wait that is not over; a host that runs ahead of its device has closed that step,
        and what is in flight then is what the Flight Recorder says of the `known` groups.
        """
        if waiting is not None and not self.announced and seen - waiting[1] > patience:
            self.announced = _in_flight(waiting[0], waiting[1], known)
            if self.announced:
                return self.announced
        calls = self._so_far(seen)
        if not calls or self.announced or seen - max(call.begun for call in calls) < patience:
            return []
        done = _done()
        last = {call.group.name: call.seq for call in calls}
        ended = [done.get((call.group.name, call.seq), bool(done) or call.seq != last[call.group.name]) for call in calls]
        self.announced = [call.operation() for call, over in zip(calls, ended, strict=True) if not over]
        return self.announced

    def _so_far(self, seen: int) -> list[Call]:
        calls = list(self.calls)
        for backward in tuple(self.backwards):
            calls += backward.calls(seen, {call.seq for call in calls if call.group is backward.group})
        return calls


def _done() -> dict[tuple[str, int], bool]:
    """Whether each operation that the recorder still knows is done; without a recorder the last of each group counts as in flight."""
    return {
        (str(entry["process_group"][0]), int(entry["collective_seq_id"])): _over(entry)
        for entry in flight_recorder.entries()
        if not entry.get("is_p2p")
    }


def _over(entry: dict[str, Any]) -> bool:
    """Gloo's recorder keeps no states, but tells what is done with."""
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def _in_flight(step: int, begun: int, known: Mapping[str, Group]) -> list[Operation]:
    """The collectives that the recorder does not know as done, as issued by `begun`."""
    calls = []
    for entry in flight_recorder.entries():
        group = known.get(str(entry["process_group"][0]))
        if group is None or entry.get("is_p2p") or _over(entry):
            continue
        name = str(entry.get("profiling_name", "")).rpartition(":")[2] or "unknown"
        shape = tuple((entry.get("input_sizes") or [[]])[0])
        dtype = getattr(torch, str((entry.get("input_dtypes") or [""])[0]).lower(), None)
        dtype = dtype if isinstance(dtype, torch.dtype) else None
        size = math.prod(shape) * dtype.itemsize if dtype is not None else 0
        calls.append(Call(step, name, group, size, dtype, shape, None, None, int(entry["collective_seq_id"]), begun).operation())
    return calls
