# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Fault rehearsal: makes this rank suffer what `%dtscope inject` asked for, really, and says so once in `notes`.

A fault is {"fault": NAME, "rank": R, "ms": size, "step": first step, "steps": how many (default: all that follow)}.

    straggler   extra matrix products before the backward, for `ms`
    host_stall  the host sleeps `ms` as a step begins
    slow_link   every collective of a group with rank R completes `ms` late, on all of its ranks (CPU backends only)
    nan         one NaN in the rank's gradient before it is averaged
    desync      "what": values (default; synchronised gradients differ), operation or shape (an extra collective on the rank alone)
    hang        the host stops before a collective
    copy        a non-contiguous input to an extra all_reduce of all ranks, and a copy of it that takes `ms`
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dtscope_jupyter.agent import readings
from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.progress import HELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dtscope_jupyter.agent.bucket import Bucket
    from dtscope_jupyter.agent.core import Agent

FAULTS = ("straggler", "host_stall", "slow_link", "nan", "desync", "hang", "copy")
_FIRST_STEP = 5
_MS = 50.0
_SIDE = 512
_COPY_SIDE = 1024
_EXTRA_ELEMENTS = 3


class Faults:
    """The faults of one rank; its methods hang in the collectors' places, and cost nothing where there is none."""

    def __init__(self, agent: Agent, faults: Iterable[dict[str, Any]]) -> None:
        """All faults of the job: some concern ranks that do not suffer them."""
        self._agent = agent
        self._faults = [fault for fault in faults if fault.get("fault") in FAULTS]
        self._told: set[int] = set()
        self._late: dict[int, int] = {}
        self._inside = False

    def _due(self, name: str, *, everywhere: bool = False) -> list[dict[str, Any]]:
        step = self._agent.progress.step
        return [fault for fault in self._faults if fault["fault"] == name and (everywhere or self._suffers(fault)) and _covers(fault, step)]

    def _suffers(self, fault: dict[str, Any]) -> bool:
        return bool(fault.get("rank", 1) == self._agent.config.rank)

    def _tell(self, fault: dict[str, Any]) -> None:
        if id(fault) in self._told:
            return
        self._told.add(id(fault))
        step = self._agent.progress.step
        size = f" of {_ms(fault):g} ms a step" if fault["fault"] in ("straggler", "host_stall", "slow_link", "copy") else ""
        text = f"rehearsal: {fault['fault']}{size} on rank {fault.get('rank', 1)} from step {step}"
        self._agent.recorder.note("fault", fault["fault"], fault.get("ms"), text, step)

    def step_closed(self, _step: int) -> None:
        """The next step begins."""
        for fault in self._due("host_stall"):
            self._tell(fault)
            time.sleep(_ms(fault) / 1e3)
        for fault in self._due("copy", everywhere=True):
            self._copy(fault)

    def before_backward(self) -> None:
        """Before the backward begins; of several in a step the first."""
        step = self._agent.progress.step
        for fault in self._due("straggler"):
            if step != HELD and self._late.get(id(fault)) == step:
                continue
            self._late[id(fault)] = step
            self._tell(fault)
            _compute(_ms(fault))

    def before_reduce(self, bucket: Bucket) -> None:
        """Before a bucket is looked at and reduced."""
        for fault in self._due("nan"):
            if bucket.index == 0:
                self._tell(fault)
                readings.stored(bucket.buffer).view(-1)[:1] = float("nan")

    def after_backward(self) -> None:
        """Gradients are there: local ones without DDP, synchronised with it."""
        faults = self._due("nan")
        gradients = self._agent.gradients
        loose = gradients.loose() if faults and gradients is not None else []
        for fault in faults if loose else ():
            self._tell(fault)
            readings.stored(loose[0]).view(-1)[:1] = float("nan")
        for fault in self._due("desync"):
            if fault.get("what", "values") == "values" and gradients is not None:
                self._tell(fault)
                gradients.spoil()

    def before_issue(self, operation: str, group: Any) -> None:
        """Before a collective of the program is issued."""
        if self._inside or operation in ("send", "recv"):
            return
        for fault in self._due("hang"):
            self._tell(fault)
            while True:
                time.sleep(0.1)
        for fault in self._due("desync"):
            if fault.get("what", "values") != "values" and id(fault) not in self._told:
                self._tell(fault)
                self._extra(str(fault["what"]), group)

    def delay_s(self, ranks: list[int] | None) -> float:
        """How late a collective of these ranks is to complete."""
        if not self._faults or ranks is None:
            return 0.0
        faults = [fault for fault in self._due("slow_link", everywhere=True) if fault.get("rank", 1) in ranks]
        for fault in faults:
            self._tell(fault)
        return sum(_ms(fault) for fault in faults) / 1e3

    def _extra(self, what: str, group: Any) -> None:
        """A collective that no other rank issues: with it, the rank's calls no longer match."""
        self._inside = True
        tensor = torch.zeros(_EXTRA_ELEMENTS, device=_device())
        if what == "shape":
            dist.all_reduce(tensor, group=group)
        else:
            dist.broadcast(tensor, group_src=0, group=group)
        self._inside = False

    def _copy(self, fault: dict[str, Any]) -> None:
        if not dist.is_initialized():
            return
        self._tell(fault)
        matrix = torch.zeros(_COPY_SIDE, _COPY_SIDE, device=_device())
        if not self._suffers(fault):
            dist.all_reduce(matrix)
            return
        start = now()
        count = 0
        while now() - start < _ms(fault) * 1e6:
            count += matrix.t().contiguous().nbytes
        self._agent.host_event("copy", start, now(), count, "contiguous copy of a transposed input")
        dist.all_reduce(matrix.t())


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def _covers(fault: dict[str, Any], step: int) -> bool:
    first = int(fault.get("step", _FIRST_STEP))
    count = fault.get("steps")
    return first <= step and (count is None or step < first + int(count))


def _ms(fault: dict[str, Any]) -> float:
    return float(fault.get("ms", _MS))


def _compute(ms: float) -> None:
    """Matrix products for about so long: on the device, where the program uses one, by waiting for each."""
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    with torch.no_grad():
        matrix = torch.ones(_SIDE, _SIDE, device=device)
        deadline = now() + int(ms * 1e6)
        while now() < deadline:
            matrix @ matrix
            if device == "cuda":
                torch.cuda.current_stream().synchronize()
