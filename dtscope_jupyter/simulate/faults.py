# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a synthetic cluster, each with what a diagnosis should say of it."""

from __future__ import annotations

from dataclasses import dataclass

from dtscope_jupyter.errors import DtscopeError

STRAGGLERS = ("compute", "slow_device", "input", "host_stall", "host_sync", "host_to_device_copy", "garbage_collection")
DESYNCS = ("operation", "shape", "dtype", "order", "values")
HANGS = ("host_stuck", "never_called", "process_died", "device_stuck")
CAUSES: dict[str, tuple[str, ...]] = {
    "straggler": STRAGGLERS,
    "slow_link": ("transport", "bandwidth"),
    "contention": ("link", "sm", "process_group"),
    "low_overlap": ("one_bucket",),
    "implicit_copy": ("non_contiguous",),
    "hang": HANGS,
    "desync": DESYNCS,
    "nonfinite": ("gradient", "loss"),
    "insufficient_data": ("missing_ranks",),
}


@dataclass(frozen=True)
class Fault:
    """One fault: `kind` and `cause` as a finding has them, the ranks that suffer it, and when.

    `size` is a share of the step for a straggler, a factor for a slow link and for contention, else unused. It touches every
    `every`-th step from `first` on, `last` excluded (None: to the end).
    """

    kind: str
    cause: str
    ranks: tuple[int, ...] = ()
    size: float = 0.3
    first: int = 0
    last: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        if self.cause not in CAUSES.get(self.kind, ()):
            known = "; ".join(f"{kind}: {', '.join(causes)}" for kind, causes in CAUSES.items())
            raise DtscopeError(f"no fault {self.kind!r} with cause {self.cause!r} can be simulated; there are {known}")

    def touches(self, step: int) -> bool:
        """Whether a step suffers it."""
        before_end = self.last is None or step < self.last
        return step >= self.first and before_end and (step - self.first) % self.every == 0
