# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The disk allowance: never passed, and steps go on to its end."""

from __future__ import annotations

from dtscope_jupyter.agent.thinning import Thinning

ALLOWANCE = 10_000_000
BLOCK = {"steps": 3_000, "collectives": 6_000, "gradients": 20_000}


def _run(steps: int) -> tuple[Thinning, dict[str, list[int]]]:
    thinning, kept = Thinning(ALLOWANCE), {name: list[int]() for name in BLOCK}
    for step in range(steps):
        for table, size in BLOCK.items():
            rows = thinning.keep(table, [(step,)])
            thinning.used += size * len(rows)
            kept[table] += [row[0] for row in rows]
    return thinning, kept


def test_steps_go_on_far_beyond_the_allowance_and_never_pass_it() -> None:
    thinning, kept = _run(20_000)
    assert thinning.used <= ALLOWANCE
    assert kept["steps"][-1] > 15_000
    assert kept["collectives"][-1] < kept["steps"][-1]


def test_all_that_is_left_out_is_counted() -> None:
    thinning, kept = _run(5_000)
    for table, steps in kept.items():
        assert len(steps) + thinning.counts[table] == 5_000


def test_nothing_is_left_out_while_there_is_room() -> None:
    thinning, kept = _run(10)
    assert not thinning.counts
    assert all(steps == list(range(10)) for steps in kept.values())
