# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Input that tells too little, or oddly: the right answer or none, and never a guess."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import diagnose
from dtscope_jupyter.simulate import Fault

Said = list[tuple[str, str, tuple[int, ...]]]
LATE = [Fault("straggler", "input", (2,), 0.4)]
TRUTH = ("straggler", "input", (2,))
SEEDS = range(61_000, 61_003)
TIERS = [{}, {"device": None}, {"sampled": 16}]


def said(tables: dict[str, pa.Table]) -> Said:
    return [(each.kind, each.cause, each.ranks) for each in diagnose(tables).findings]


def without(tables: dict[str, pa.Table], rank: int) -> dict[str, pa.Table]:
    return {name: table.filter(pc.not_equal(table["rank"], rank)) for name, table in tables.items()}


def shifted(tables: dict[str, pa.Table], rank: int, ns: int) -> dict[str, pa.Table]:
    """One rank's clock is off, and nobody knows by how much."""
    moved = {}
    for name, table in tables.items():
        for place, field in enumerate(table.schema):
            if field.name.endswith("_ns") and len(table):
                column = pc.if_else(pc.equal(table["rank"], rank), pc.add(table.column(place), ns), table.column(place))
                table = table.set_column(place, field, column)  # noqa: PLW2901
        moved[name] = table
    return {**moved, "clocks": moved["clocks"].slice(0, 0)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", TIERS)
def test_one_rank_missing(seed: int, program: dict[str, Any]) -> None:
    whole = simulate.run(4, 32, LATE, seed=seed, **program)
    assert said(without(whole, 2)) == [("insufficient_data", "missing_ranks", (2,))]
    assert sorted(said(without(whole, 1))) == [("insufficient_data", "missing_ranks", (1,)), TRUTH]


@pytest.mark.parametrize("seed", SEEDS)
def test_half_a_step(seed: int) -> None:
    tables = dict(simulate.run(4, 2, LATE, seed=seed))
    middle = int(np.mean(tables["steps"]["start_ns"].to_numpy()[:4])) + 25_000_000
    for name, column in (("steps", "end_ns"), ("collectives", "end_ns"), ("host", "end_ns")):
        tables[name] = tables[name].filter(pc.less(tables[name][column], middle))
    found = said(tables)
    assert found == [("insufficient_data", "missing_steps", (0, 1, 2, 3))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", TIERS)
@pytest.mark.parametrize("seconds", [5, -5])
def test_a_clock_5_s_off(seed: int, program: dict[str, Any], seconds: int) -> None:
    healthy = said(shifted(dict(simulate.run(4, 32, seed=seed, **program)), 1, seconds * 10**9))
    assert [each for each in healthy if each[0] != "insufficient_data"] == []
    late = said(shifted(dict(simulate.run(4, 32, LATE, seed=seed, **program)), 1, seconds * 10**9))
    assert [each for each in late if each[0] != "insufficient_data"] in ([], [TRUTH])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", TIERS)
@pytest.mark.parametrize("cause", ["compute", "input", "host_stall", "slow_device"])
def test_all_ranks_slow_alike_are_no_stragglers(seed: int, program: dict[str, Any], cause: str) -> None:
    faults = [Fault("straggler", cause, (0, 1, 2, 3), 0.5, first=10)]
    assert [each for each in said(simulate.run(4, 32, faults, seed=seed, **program)) if each[0] == "straggler"] == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", TIERS)
def test_steps_of_very_different_length(seed: int, program: dict[str, Any]) -> None:
    """All ranks have up to ten times as much work in some steps, as batches of many lengths give."""
    draw = np.random.default_rng(seed)
    uneven = [Fault("straggler", "compute", (0, 1, 2, 3), float(draw.uniform(0.5, 10)), first=step, last=step + 1) for step in range(40)]
    assert [each for each in said(simulate.run(4, 40, uneven, seed=seed, **program)) if each[0] != "insufficient_data"] == []
    late = [Fault("straggler", "input", (2,), 0.8)]
    assert TRUTH in said(simulate.run(4, 40, uneven + late, seed=seed, **program))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", TIERS)
def test_two_steps_only(seed: int, program: dict[str, Any]) -> None:
    assert said(simulate.run(4, 2, seed=seed, **program)) == []
    assert said(simulate.run(4, 2, LATE, seed=seed, **program)) in ([], [TRUTH], [("insufficient_data", "missing_steps", (0, 1, 2, 3))])


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_of_several_faults_are_no_more_than_was_lost(seed: int) -> None:
    faults = [
        Fault("straggler", "compute", (1,), 0.3),
        Fault("straggler", "input", (5,), 1.2, every=3),
        Fault("straggler", "host_stall", (6,), 4.0, first=13, last=14),
        Fault("slow_link", "bandwidth", (), 8, first=20),
    ]
    found = diagnose(simulate.run(8, 40, faults, seed=seed, gradient_bytes=2**30)).findings
    told = {(each.cause, each.ranks) for each in found}
    assert {("compute", (1,)), ("input", (5,)), ("host_stall", (6,)), ("bandwidth", tuple(range(8)))} <= told
    patterns = {each.cause: each.evidence.get("pattern") for each in found}
    assert (patterns["compute"], patterns["input"], patterns["host_stall"]) == ("each step", "every 3 steps", "one step")
    healthy = diagnose(simulate.run(8, 40, seed=seed, gradient_bytes=2**30)).step_ms
    sick = simulate.run(8, 40, faults, seed=seed, gradient_bytes=2**30)["steps"]
    mean = float(np.mean(sick["end_ns"].to_numpy() - sick["start_ns"].to_numpy())) / 1e6
    assert sum(each.cost_ms * len(each.steps) / 40 for each in found) <= 1.1 * (mean - healthy)
