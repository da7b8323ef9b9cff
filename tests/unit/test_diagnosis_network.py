# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from analysis_rows import at, collective, tables

from dtscope_jupyter.diagnosis import diagnose

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = [{"rank": rank, "process_group": "0", "backend": "gloo", "ranks": [0, 1]} for rank in range(2)]
CLOCKS = [{"rank": rank, "host": "a", "boot_id": "a", "method": "same_host", "offset_ns": 0, "uncertainty_ns": 0} for rank in range(2)]


def gloo_run(transfer_ms: float, *, lead_ms: float, delay_ms: float) -> dict[str, pa.Table]:
    """Two ranks that all-reduce 4 MB in each of ten steps; rank 1 leaves `lead_ms` earlier; threads wait `delay_ms` for a CPU."""
    length = transfer_ms + lead_ms + 20
    calls, steps = [], []
    for step in range(10):
        begin = step * length
        for rank in range(2):
            end = begin + 10 + transfer_ms + (lead_ms if rank == 0 else 0)
            calls.append(collective(rank, step, begin + 10, end, step=step, bytes=4 * 2**20, group_size=2, phase="backward"))
            steps.append({
                "rank": rank, "step": step, "start_ns": at(begin), "end_ns": at(begin + length), "exposed_ms": end - begin - 10,
                "comm_ms": end - begin - 10, "compute_ms": 20.0, "thread_delay_ms": delay_ms, "thread_cpu_ms": 15.0,
            })  # fmt: skip
    return tables(collectives=calls, steps=steps, groups=GROUP, clocks=CLOCKS)


def slow(found: dict[str, pa.Table]) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.cause, each.ranks) for each in diagnose(found).findings if each.kind == "slow_link"]


def test_a_network_below_any_wire_is_slow_on_the_side_that_leaves_first() -> None:
    assert slow(gloo_run(1500, lead_ms=400, delay_ms=0.5)) == [("bandwidth", (1,))]


def test_without_a_side_both_are_named() -> None:
    assert slow(gloo_run(1500, lead_ms=5, delay_ms=0.5)) == [("bandwidth", (0, 1))]


def test_a_usual_rate_is_none() -> None:
    assert slow(gloo_run(10, lead_ms=1, delay_ms=0.5)) == []


def test_on_a_busy_cpu_nothing_is_said_of_the_network() -> None:
    assert slow(gloo_run(1500, lead_ms=400, delay_ms=300)) == []
