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
_SMALL, _LARGE = 8, 4 * 2**20
_WARM, _LEAST = 2, 3


def measure(budget: float = _BUDGET_S) -> list[dict[str, Any]]:
    """One row a pair of ranks, measured one after the other by this rank and its peers within `budget` seconds.

    `latency_us` is half of the shortest round trip of 8 bytes, `bandwidth_gb_s` the bytes of the best round trip of
    4 MiB there and back over its time. To be called on every rank; the rows are those of pairs that rank 0 heard of.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group()
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    pairs = list(combinations(range(dist.get_world_size()), 2))
    rows: list[dict[str, Any] | None] = []
    for pair in pairs:
        dist.barrier()
        rows.append(_pair(pair, budget / len(pairs) / 2, device) if dist.get_rank() in pair else None)
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, rows)
    return [gathered[first][place] for place, (first, _) in enumerate(pairs)]


def _pair(pair: tuple[int, int], budget: float, device: torch.device) -> dict[str, Any]:
    small, large = (_round_trip(pair, size, budget, device) for size in (_SMALL, _LARGE))
    return {"rank_a": pair[0], "rank_b": pair[1], "latency_us": small / 2 * 1e6, "bandwidth_gb_s": 2 * _LARGE / large / 1e9}


def _round_trip(pair: tuple[int, int], size: int, budget: float, device: torch.device) -> float:
    """Seconds of the best round trip; the first of the pair says when it is enough."""
    import torch
    import torch.distributed as dist

    first = dist.get_rank() == pair[0]
    data = torch.zeros(size, dtype=torch.uint8, device=device)
    best, end, count = float("inf"), time.perf_counter() + budget, 0
    while True:
        last = torch.tensor([int(count >= _WARM + _LEAST and time.perf_counter() > end)], device=device)
        (dist.send if first else dist.recv)(last, pair[1] if first else pair[0])
        begin = time.perf_counter()
        for send in (first, not first):
            (dist.send if send else dist.recv)(data, pair[1] if first else pair[0])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        count += 1
        best = min(best, time.perf_counter() - begin) if count > _WARM else best
        if last.item():
            return best


@dataclass(frozen=True)
class Links:
    """What was measured: one row a pair; `frame` for more, the text for a reader."""

    rows: tuple[dict[str, Any], ...]

    @property
    def frame(self) -> pd.DataFrame:
        """rank_a, rank_b, latency_us, bandwidth_gb_s."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __repr__(self) -> str:
        """A line a pair."""
        lines = ["ranks    latency us  bandwidth GB/s"]
        for row in self.rows:
            pair = f"{row['rank_a']}-{row['rank_b']}"
            lines.append(f"{pair:<8} {row['latency_us']:>10.1f}  {row['bandwidth_gb_s']:>14.3g}")
        return "\n".join(lines)
