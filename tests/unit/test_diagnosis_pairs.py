# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analysis_rows import collective, step, tables

from dtscope_jupyter.diagnosis import Finding, diagnose
from dtscope_jupyter.probe import Links

SIZE = 4 * 2**20


def ring(slow: tuple[int, int] | None, times: float, *, seed: int = 0, late: int | None = None) -> list[Finding]:
    """Four ranks that pass 4 MiB on to the next in each of 12 steps; 10 ms a message, between the two slow ones more."""
    draw = np.random.default_rng(seed)
    calls: list[dict[str, Any]] = []
    steps = []
    for number in range(12):
        begin, longest = number * 200.0, 0.0
        for rank in range(4):
            peer, wait = (rank + 1) % 4, 30.0 if rank == late else 0.0
            lasts = 10 * (times if slow and {rank, peer} == set(slow) else 1) * float(draw.uniform(0.9, 1.1))
            longest = max(longest, wait + lasts)
            same = {"step": number, "bytes": SIZE, "state": "completed", "source": "host"}
            calls.append(collective(rank, number, begin + 50 + wait, begin + 50 + wait + lasts, operation="send", peer=peer, **same))
            calls.append(collective(peer, number, begin + 50, begin + 50.2 + wait + lasts, operation="recv", peer=rank, **same))
        steps += [step(rank, number, begin, begin + 60 + longest, exposed_ms=longest, compute_ms=60.0) for rank in range(4)]
    return diagnose(tables(collectives=calls, steps=steps)).findings


@pytest.mark.parametrize("slow", [(0, 1), (2, 3), (0, 3)])
@pytest.mark.parametrize("times", [2.5, 6.0])
def test_a_slow_pair_is_located_from_sends_and_receives(slow: tuple[int, int], times: float) -> None:
    (finding,) = [each for each in ring(slow, times) if each.kind == "slow_link"]
    assert (finding.cause, finding.ranks) == ("bandwidth", slow)
    assert finding.evidence["ratio"] == pytest.approx(times, rel=0.15)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_that_are_alike_are_not_slow(seed: int) -> None:
    assert [each for each in ring(None, 1.0, seed=seed) if each.kind == "slow_link"] == []


def test_a_rank_that_sends_late_makes_no_slow_pair() -> None:
    assert [each for each in ring(None, 1.0, late=2) if each.kind == "slow_link"] == []


def test_measured_pairs_say_which_is_slow_and_which_was_not_reached() -> None:
    rates = {(0, 1): 10.0, (0, 2): 1.0, (1, 2): 9.0, (0, 3): 11.0, (1, 3): None}
    links = Links(tuple({"rank_a": a, "rank_b": b, "latency_us": rate and 5.0, "bandwidth_gb_s": rate} for (a, b), rate in rates.items()))
    assert links.slow == ((0, 2),)
    assert [line.split()[-1] for line in repr(links).splitlines()[1:]] == ["10", "slow", "9", "11", "given"]
