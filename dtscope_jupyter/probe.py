# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Active measurement of the links between ranks, at most 2 s."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import torch

PROGRAM = "from dtscope_jupyter import probe\ndtscope_links = probe.measure()"
"""The cell that every rank runs; rank 0 then has the rows."""

_BUDGET_S = 2.0
_SMALL, _MEDIUM, _LARGE, _TIMES = 8, 2**16, 4 * 2**20, 4
_WARM, _LEAST = 2, 3
_FOR_LATENCY = 0.3
_SLOW = 0.5


def measure(budget: float = _BUDGET_S) -> list[dict[str, Any]]:
    """One row a pair of ranks, measured one after the other by this rank and its peers within about `budget` seconds.

    `latency_us` is half of the shortest round trip of 8 bytes, `bandwidth_gb_s` the bytes of the best round trip there and back over its
    time, of 64 KiB to 4 MiB as the time allows; both None for pairs that the time was too short for. To be called on every rank.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group()
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    pairs = list(combinations(range(dist.get_world_size()), 2))
    rows: list[dict[str, Any]] = [{"rank_a": a, "rank_b": b, "latency_us": None, "bandwidth_gb_s": None} for a, b in pairs]
    begin = time.perf_counter()
    for row, pair in zip(rows, pairs, strict=True):
        over = torch.tensor([int(time.perf_counter() - begin > budget)], device=device)
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.item():
            break
        if dist.get_rank() in pair:
            row.update(_pair(pair, budget / len(pairs), device))
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, rows)
    return [gathered[first][place] for place, (first, _) in enumerate(pairs)]


def _pair(pair: tuple[int, int], budget: float, device: torch.device) -> dict[str, float]:
    """Round trips of sizes that the first of the pair chooses; the second follows."""
    import torch
    import torch.distributed as dist

    plan, other = _Plan(budget), pair[1] if dist.get_rank() == pair[0] else pair[0]
    leads = other == pair[1]
    order = torch.zeros(1, dtype=torch.int64, device=device)
    while True:
        order.fill_(plan.size)
        (dist.send if leads else dist.recv)(order, other)
        size = int(order.item())
        if size == 0:
            return plan.result
        plan.take(size, _round_trip(size, other, device, leads=leads))


def _round_trip(size: int, other: int, device: torch.device, *, leads: bool) -> float:
    import torch
    import torch.distributed as dist

    data = torch.zeros(size, dtype=torch.uint8, device=device)
    begin = time.perf_counter()
    for sends in (leads, not leads):
        (dist.send if sends else dist.recv)(data, other)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


class _Plan:
    """What to send next: small messages for the latency, then ever larger ones as far as the time reaches; `size` 0 ends it."""

    def __init__(self, budget: float) -> None:
        self.size = _SMALL
        self._begin, self._budget = time.perf_counter(), budget
        self._count = 0
        self._small, self._rate = float("inf"), 0.0

    def take(self, size: int, seconds: float) -> None:
        self._count += 1
        left = self._budget - (time.perf_counter() - self._begin)
        if size == _SMALL:
            self._small = min(self._small, seconds) if self._count > _WARM else seconds
            enough = self._count >= _WARM + _LEAST and left < (1 - _FOR_LATENCY) * self._budget
            self.size = _MEDIUM if enough or left <= 0 else _SMALL
            return
        self._rate = max(self._rate, 2 * size / seconds)
        larger = min(size * _TIMES, _LARGE)
        needed = 2 * larger / self._rate
        self.size = 0 if left < 2 * size / self._rate else larger if needed < left else size

    @property
    def result(self) -> dict[str, float]:
        return {"latency_us": self._small / 2 * 1e6, "bandwidth_gb_s": self._rate / 1e9}


@dataclass(frozen=True)
class Links:
    """What was measured: one row a pair; `frame` for more, the text for a reader."""

    rows: tuple[dict[str, Any], ...]

    @property
    def frame(self) -> pd.DataFrame:
        """rank_a, rank_b, latency_us, bandwidth_gb_s."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def slow(self) -> tuple[tuple[int, int], ...]:
        """Pairs of less than half the median bandwidth, of three pairs or more."""
        known = sorted(row["bandwidth_gb_s"] for row in self.rows if row["bandwidth_gb_s"] is not None)
        least = _SLOW * known[len(known) // 2] if len(known) > 2 else 0.0  # noqa: PLR2004 - of two nobody knows which is the usual
        return tuple(
            (row["rank_a"], row["rank_b"]) for row in self.rows if row["bandwidth_gb_s"] is not None and row["bandwidth_gb_s"] < least
        )

    def __repr__(self) -> str:
        """A line a pair."""
        lines = ["ranks    latency us  bandwidth GB/s"]
        for row in self.rows:
            pair = f"{row['rank_a']}-{row['rank_b']}"
            if row["bandwidth_gb_s"] is None:
                lines.append(f"{pair:<8} {'-':>10}  {'-':>14}  not reached in the time given")
                continue
            mark = "  slow" if (row["rank_a"], row["rank_b"]) in self.slow else ""
            lines.append(f"{pair:<8} {row['latency_us']:>10.1f}  {row['bandwidth_gb_s']:>14.3g}{mark}")
        return "\n".join(lines)
