# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A synthetic cluster and its program: what a step consists of and how fast links are."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from dtscope_jupyter.intervals import Ints
    from dtscope_jupyter.simulate.faults import Fault


@dataclass(frozen=True)
class Item:
    """One collective of a step: where in the compute it is issued, in which groups, how large, and whether the caller waits."""

    at: float
    partition: Ints
    names: tuple[str, ...]
    bytes: int
    blocking: bool
    bucket: int | None
    phase: str


@dataclass(frozen=True)
class Cluster:
    """World, program and noise; times in ms, rates in GB/s.

    With `tensor` > 1 neighbours of so many ranks form tensor-parallel groups that all-reduce activations, and gradients are
    all-reduced across them. `device` is the model's name where the ranks have GPUs, None on CPUs. With `sampled` > 1 the host runs
    ahead of its device, and only one step in so many has rows of its collectives, as our recorder does on devices. `spans` adds a
    profiler's kernels, `counters` samples of what each host's link carries, `second_group` a process group of all ranks with
    a collective of its own in each forward (beside the buckets where contention of process groups makes it so).
    """

    world_size: int = 4
    steps: int = 20
    compute_ms: float = 50.0
    input_ms: float = 0.5
    optimizer_ms: float = 3.0
    gradient_bytes: int = 200 * 2**20
    buckets: int = 8
    tensor: int = 1
    layers: int = 4
    link_gb_s: float = 180.0
    latency_ms: float = 0.03
    noise: float = 0.01
    spikes: float = 0.0
    ranks_per_host: int = 8
    clock_spread_ms: float = 0.0
    device: str | None = "NVIDIA H200"
    sampled: int = 1
    spans: bool = False
    counters: bool = False
    second_group: bool = False
    faults: tuple[Fault, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if self.world_size < 2 or self.steps < 1 or self.world_size % self.tensor:  # noqa: PLR2004 - two make a cluster
            raise DtscopeError(
                f"can't simulate {self.world_size} ranks, {self.steps} steps, tensor groups of {self.tensor}; "
                "take two ranks or more, a step or more, and a divisor of the ranks"
            )

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The collectives of a step in the order in which they are issued: activations forward, buckets backward."""
        single = any(fault.kind == "low_overlap" for fault in self.faults)
        count = 1 if single else self.buckets
        replica, groups = np.arange(self.world_size) % self.tensor, self.tensor
        names = tuple(f"dp{number}" for number in range(groups)) if groups > 1 else ("0",)
        buckets = [
            Item(
                1 / 3 + 2 / 3 * (number + 1) / count,
                replica,
                names,
                self.gradient_bytes // self.tensor // count,
                blocking=False,
                bucket=number,
                phase="backward",
            )
            for number in range(count)
        ]
        return (*self._activations, *self._second, *buckets)

    @cached_property
    def _second(self) -> tuple[Item, ...]:
        if not self.second_group:
            return ()
        everybody = np.zeros(self.world_size, np.int64)
        return (Item(1 / 6, everybody, ("ep",), self.gradient_bytes // 4, blocking=False, bucket=None, phase="forward"),)

    @cached_property
    def _activations(self) -> tuple[Item, ...]:
        if self.tensor == 1:
            return ()
        group = np.arange(self.world_size) // self.tensor
        names = tuple(f"tp{number}" for number in range(self.world_size // self.tensor))
        return tuple(
            Item((number + 1) / (3 * self.layers + 3), group, names, 8 * 2**20, blocking=True, bucket=None, phase="forward")
            for number in range(self.layers)
        )

    def transfer_ms(self, item: Item, size: int) -> float:
        """Alpha + beta * bytes on the wire, of an all-reduce over `size` ranks."""
        return self.latency_ms + 2 * (size - 1) / size * item.bytes / self.link_gb_s / 1e6

    def of(self, kind: str, step: int | None = None) -> list[Fault]:
        """Faults of a kind, of those that touch a step."""
        return [fault for fault in self.faults if fault.kind == kind and (step is None or fault.touches(step))]
