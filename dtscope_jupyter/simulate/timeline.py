# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a cluster's steps: every rank computes at its own pace and collectives end when the last rank is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dtscope_jupyter.intervals import Ints
    from dtscope_jupyter.simulate.cluster import Cluster, Item
    from dtscope_jupyter.simulate.faults import Fault

Reals: TypeAlias = npt.NDArray[np.float64]

_SLOW_CLOCK = 0.6
_KERNELS, _NAMES, _USUAL_BESIDE = 48, 4, 1.1
"""Kernels a step, their names, and how much longer they take beside a collective in a healthy run (H200: 1.1 to 1.25)."""
_LAUNCHES = 0.3
"""A host launches a step's kernels in this share of the time that its device takes for them."""


@dataclass
class Played:
    """What happened, in ms since the beginning on a perfect clock: lists by step, arrays by rank."""

    start: list[Reals] = field(default_factory=list)
    end: list[Reals] = field(default_factory=list)
    backward_start: list[Reals] = field(default_factory=list)
    backward_end: list[Reals] = field(default_factory=list)
    optimizer_start: list[Reals] = field(default_factory=list)
    input: list[Reals] = field(default_factory=list)
    compute: list[Reals] = field(default_factory=list)
    cpu: list[Reals] = field(default_factory=list)
    exposed: list[Reals] = field(default_factory=list)
    calls: list[list[tuple[Reals, Reals, Reals]]] = field(default_factory=list)
    """Of each step and item: enqueue, start, end."""
    host: list[tuple[Ints, int, str, Reals, Reals]] = field(default_factory=list)
    """Ranks, step, kind, starts and ends of what hosts did instead of launching work."""
    kernels: list[tuple[int, int, Reals, Reals]] = field(default_factory=list)
    """Step, number of the name, starts and ends by rank."""


class Player:
    """Plays one cluster; `generator` is the only source of chance."""

    def __init__(self, cluster: Cluster, generator: np.random.Generator) -> None:
        self.cluster = cluster
        self.generator = generator
        self.pace = 1 + 0.3 * cluster.noise * generator.standard_normal(cluster.world_size)
        self.played = Played()

    def play(self, steps: int) -> Played:
        """The first `steps` steps."""
        clock = np.zeros(self.cluster.world_size)
        for step in range(steps):
            clock = self._step(step, clock)
        return self.played

    def _step(self, step: int, clock: Reals) -> Reals:
        cluster, played = self.cluster, self.played
        played.start.append(clock.copy())
        input_ms = cluster.input_ms * self._noise(5)
        clock, input_ms, cpu = self._delays(step, clock + input_ms, input_ms)
        compute = cluster.compute_ms * self.pace * self._noise() * self._slower(step)
        host = clock.copy()
        clock, extra = self._extra(step, clock, compute)
        played.backward_start.append(host + _LAUNCHES * cluster.compute_ms / 3 if cluster.sampled > 1 else clock + compute / 3)
        clock, exposed = self._compute(step, clock, compute, host)
        played.backward_end.append(clock.copy())
        played.optimizer_start.append(clock.copy())
        optimizer = cluster.optimizer_ms * self._noise()
        clock = clock + optimizer
        played.input.append(input_ms)
        played.compute.append(compute + extra + optimizer)
        launches = np.full_like(clock, _LAUNCHES * cluster.compute_ms)
        played.cpu.append((launches if cluster.sampled > 1 else compute + extra + optimizer) + cpu)
        played.exposed.append(exposed)
        played.end.append(clock.copy())
        return clock

    def _noise(self, times: float = 1.0) -> Reals:
        cluster = self.cluster
        noise = np.exp(times * cluster.noise * self.generator.standard_normal(cluster.world_size))
        spiked = self.generator.random(cluster.world_size) < cluster.spikes
        return np.where(spiked, noise * self.generator.uniform(1.2, 2.0, cluster.world_size), noise)

    def _rows(self, fault: Fault) -> Ints:
        return np.array(fault.ranks, dtype=np.int64)

    def _slower(self, step: int) -> Reals:
        factor = np.ones(self.cluster.world_size)
        for fault in self.cluster.of("straggler", step):
            if fault.cause == "slow_device":
                factor[self._rows(fault)] *= 1 + fault.size
        return factor

    def _extra(self, step: int, clock: Reals, compute: Reals) -> tuple[Reals, Reals]:
        extra = np.zeros_like(compute)
        for fault in self.cluster.of("straggler", step):
            if fault.cause == "compute":
                extra[self._rows(fault)] += fault.size * self.cluster.compute_ms
        return clock + extra, extra

    def _delays(self, step: int, clock: Reals, input_ms: Reals) -> tuple[Reals, Reals, Reals]:
        """What holds hosts up at the start of the step: clock, input time, and CPU time used for it."""
        cpu = np.zeros_like(clock)
        kinds = {"input": "input", "garbage_collection": "gc", "host_sync": "host_sync", "host_to_device_copy": "copy"}
        for fault in self.cluster.of("straggler", step):
            if fault.cause in ("compute", "slow_device"):
                continue
            rows = self._rows(fault)
            lasts = fault.size * self.cluster.compute_ms * self.generator.uniform(0.9, 1.1, len(rows))
            if fault.cause in kinds:
                self.played.host.append((rows, step, kinds[fault.cause], clock[rows], clock[rows] + lasts))
            clock[rows] += lasts
            input_ms[rows] += lasts if fault.cause == "input" else 0
            cpu[rows] += lasts if fault.cause == "garbage_collection" else 0
        return clock, input_ms, cpu

    def _compute(self, step: int, clock: Reals, compute: Reals, host: Reals) -> tuple[Reals, Reals]:
        """Compute with its collectives: the clock when both are done, and the time that the thread was blocked.

        `host` is when hosts begin to launch; they run ahead of their devices where collectives are sampled.
        """
        free, exposed, done = np.full_like(clock, -np.inf), np.zeros_like(clock), 0.0
        calls = []
        beside = self._beside(step)
        for item in self.cluster.items:
            clock = self._kernels(step, clock, (item.at - done) * compute, free)
            done = item.at
            if item.names == ("ep",):
                after = clock + (0.4 * compute if beside > 1 else 0)
                calls.append((clock.copy(), after, self._meet(step, item, after, beside)))
                continue
            enqueue = host + _LAUNCHES * item.at * self.cluster.compute_ms if self.cluster.sampled > 1 else clock.copy()
            start = np.maximum(clock, free)
            end = self._meet(step, item, start, beside)
            calls.append((enqueue, start, end))
            if item.blocking:
                self._waits(step, clock, end)
                exposed += end - clock
                clock = end.copy()
            free = end
        clock = self._kernels(step, clock, (1 - done) * compute, free)
        after = np.maximum(clock, free)
        self._waits(step, clock, after)
        self.played.calls.append(calls)
        return after, exposed + after - clock

    def _kernels(self, step: int, clock: Reals, length: Reals, free: Reals) -> Reals:
        """Compute of so long, in kernels if a profiler looks: those beside communication take longer."""
        if not self.cluster.spans:
            return clock + length
        slower = max((fault.size for fault in self.cluster.of("contention", step) if fault.cause == "sm"), default=_USUAL_BESIDE)
        count = max(round(float(np.median(length)) / self.cluster.compute_ms * _KERNELS), 1)
        for number in range(count):
            each = length / count * np.exp(0.3 * self.cluster.noise * self.generator.standard_normal(len(clock)))
            end = clock + each * np.where(clock < free, slower, 1.0)
            self.played.kernels.append((step, number % _NAMES, clock.copy(), end.copy()))
            clock = end
        return clock

    def _beside(self, step: int) -> float:
        """How many times as long collectives of two groups take in this step, as they share time; 1 where they don't."""
        return max((fault.size for fault in self.cluster.of("contention", step) if fault.cause == "process_group"), default=1.0)

    def _waits(self, step: int, starts: Reals, ends: Reals) -> None:
        rows = np.flatnonzero(ends > starts)
        self.played.host.append((rows, step, "collective_wait", starts[rows].copy(), ends[rows].copy()))

    def _meet(self, step: int, item: Item, start: Reals, beside: float = 1.0) -> Reals:
        """When an item's collectives end: the last start in each group, and the transfer."""
        last = np.full(len(item.names), -np.inf)
        np.maximum.at(last, item.partition, start)
        size = np.bincount(item.partition)
        transfer = np.array([self.cluster.transfer_ms(item, int(n)) for n in size]) * self._links(step, item)
        if item.names == ("ep",) or (self.cluster.second_group and item.bucket in (1, 2)):
            transfer = transfer * beside
        transfer *= np.exp(2 * self.cluster.noise * self.generator.standard_normal(len(size)))
        spread = 0.002 * self.generator.random(self.cluster.world_size)
        return np.asarray((last + transfer)[item.partition] + spread)

    def _links(self, step: int, item: Item) -> Reals:
        factor = np.ones(len(item.names))
        for fault in self.cluster.of("contention", step):
            factor *= fault.size if fault.cause == "link" else 1.0
        for fault in self.cluster.of("slow_link", step):
            hit = np.unique(item.partition[self._rows(fault)]) if fault.ranks else np.arange(len(item.names))
            whole = [group for group in hit if not fault.ranks or set(np.flatnonzero(item.partition == group)) == set(fault.ranks)]
            factor[np.array(whole, dtype=np.int64)] *= fault.size
        return factor


def slow_clocks(cluster: Cluster) -> dict[int, float]:
    """Share of the usual clock at which the devices of slow ranks run."""
    return {rank: _SLOW_CLOCK for fault in cluster.of("straggler") if fault.cause == "slow_device" for rank in fault.ranks}
