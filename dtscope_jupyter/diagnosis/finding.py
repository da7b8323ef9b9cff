# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a diagnosis says: one Finding a fault."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

CAUSES: dict[str, tuple[str, ...]] = {
    "straggler": ("compute", "slow_device", "input", "host_stall", "host_sync", "host_to_device_copy", "garbage_collection", "unknown"),
    "slow_link": ("transport", "bandwidth", "latency", "unknown"),
    "contention": ("link", "sm", "process_group", "unknown"),
    "low_overlap": ("one_bucket", "bucket_size", "blocking_wait", "tail", "unknown"),
    "implicit_copy": ("non_contiguous", "dtype_cast", "bucket_copy", "pageable_host_memory"),
    "hang": ("host_stuck", "never_called", "device_stuck", "process_died", "unknown"),
    "desync": ("operation", "shape", "dtype", "order", "values"),
    "nonfinite": ("gradient", "loss"),
    "insufficient_data": ("missing_ranks", "missing_steps", "clock", "no_timing"),
}
"""Every kind with its causes."""


class Severity(StrEnum):
    """info costs nothing measurable; warning 2 % of a step or more; critical 20 % or more, or wrong or stuck."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True)
class Finding:
    """One fault: who, what, since when, what it costs, and what to change.

    `cost_ms` is the step time that would be won, mean over `steps`, the steps it touches ([] where it is of none).
    """

    kind: str
    cause: str
    ranks: tuple[int, ...]
    severity: Severity
    confidence: float
    cost_ms: float
    steps: tuple[int, ...]
    evidence: dict[str, Any] = field(hash=False)
    advice: str
    sentence: str

    def __post_init__(self) -> None:
        assert self.cause in CAUSES[self.kind], f"{self.kind} has no cause {self.cause}"
        assert 0 <= self.confidence <= 1, f"confidence {self.confidence}"
        assert math.isfinite(self.cost_ms), f"cost {self.cost_ms}"
        assert self.cost_ms >= 0, f"cost {self.cost_ms}"

    def to_dict(self) -> dict[str, Any]:
        """As docs/report.schema.json describes it: plain JSON values, numbers that are not finite as null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: plain(value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """The value in terms of JSON; NaN and infinite numbers become None, floats keep six significant digits."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def severity(cost_ms: float, step_ms: float) -> Severity:
    """By the share of a step that it costs."""
    share = cost_ms / step_ms if step_ms > 0 else 0.0
    if share >= CRITICAL_SHARE:
        return Severity.CRITICAL
    return Severity.WARNING if share >= WARNING_SHARE else Severity.INFO


WARNING_SHARE, CRITICAL_SHARE = 0.02, 0.20


def milliseconds(value: float) -> str:
    """A duration for a sentence, three significant digits at most: 0.3 ms, 27 ms, 1.2 s."""
    if value >= 1e3:  # noqa: PLR2004 - a second
        return f"{value / 1e3:.3g} s"
    return f"{value:.2g} ms" if value < 1e2 else f"{value:.0f} ms"  # noqa: PLR2004 - digits


def megabytes(count: float) -> str:
    """Bytes for a sentence: 12 kB, 3.4 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def name_ranks(ranks: tuple[int, ...], everyone: int = 0) -> str:
    """`Rank 2`, `Ranks 0 to 3`, `Ranks 12 and 14`, or `All 4 ranks`."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) == everyone:
        return f"All {everyone} ranks"
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):  # noqa: PLR2004 - a run of them
        return f"Ranks {ranks[0]} to {ranks[-1]}"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}" if len(ranks) <= 8 else f"{len(ranks)} ranks"  # noqa: PLR2004
