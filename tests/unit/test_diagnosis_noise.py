# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Effects against the scatter of their own estimate: what is seen all the same, and what isn't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import Severity, diagnose
from dtscope_jupyter.diagnosis.late import surely
from dtscope_jupyter.simulate import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.diagnosis import Finding

Values = np.ndarray[Any, np.dtype[np.float64]]


def changed(tables: dict[str, pa.Table], name: str, change: Callable[[Values, Values, Values], Values]) -> dict[str, pa.Table]:
    """The tables with a column of `steps` changed by (values, ranks, steps)."""
    steps = tables["steps"]
    place = steps.schema.get_field_index(name)
    values = np.array(steps[name].to_pylist(), dtype=np.float64)
    new = change(values, steps["rank"].to_numpy(), steps["step"].to_numpy())
    return {
        **tables,
        "steps": steps.set_column(place, steps.schema.field(place), pa.array(new, steps.schema.field(place).type, from_pandas=True)),
    }


def norms(tables: dict[str, pa.Table], factor: float, first: int) -> list[Finding]:
    """Findings where rank 1's norm of step `first` is `factor` times the others'."""
    return diagnose(changed(tables, "synced_norm", lambda v, rank, step: np.where((rank == 1) & (step == first), factor * v, v))).findings


@pytest.mark.parametrize(("megabytes", "factor"), [(1, 1 + 2.4e-5), (25, 1 + 1e-4), (25, 1 - 1e-4)])
def test_norms_that_were_summed_in_another_order_are_no_desync(megabytes: int, factor: float) -> None:
    tables = simulate.run(2, 20, seed=3, gradient_bytes=megabytes * 2**20, buckets=1, device=None)
    assert norms(tables, factor, 12) == []


@pytest.mark.parametrize(("world_size", "ranks"), [(2, (0, 1)), (3, (1,)), (8, (1,))])
@pytest.mark.parametrize("factor", [1.0005, 1.02, 0.7])
def test_norms_that_differ_by_more_are_one(world_size: int, ranks: tuple[int, ...], factor: float) -> None:
    (finding,) = norms(simulate.run(world_size, 20, seed=3), factor, 12)
    assert (finding.kind, finding.cause, finding.ranks, finding.steps) == ("desync", "values", ranks, (12,))
    assert (finding.evidence["last_equal_step"], finding.evidence["not_before"]) == (11, 12)
    assert "since step 12" in finding.sentence


def test_a_desync_seen_at_the_first_look_is_dated_to_it_or_before() -> None:
    tables = simulate.run(3, 20, seed=3)
    tables = changed(tables, "synced_norm", lambda v, _, step: np.where(step < 8, np.nan, v))
    (finding,) = norms(tables, 1.5, 8)
    assert finding.evidence["last_equal_step"] is None
    assert "since step 8 or before, the first that was looked at" in finding.sentence


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("cause", ["slow_device", "compute", "host_stall", "input"])
@pytest.mark.parametrize(("world_size", "rank"), [(2, 0), (16, 9)])
def test_a_small_delay_in_rhythm_is_named(cause: str, every: int, world_size: int, rank: int) -> None:
    fault = Fault("straggler", cause, (rank,), 0.15, first=3, every=every)
    (finding,) = diagnose(simulate.run(world_size, 24, (fault,), seed=every, noise=0.015)).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", cause, (rank,))
    assert finding.evidence["pattern"] == f"every {every} steps"
    assert finding.steps == tuple(range(3, 24, every))


@pytest.mark.parametrize("seed", range(6))
def test_chance_has_no_rhythm(seed: int) -> None:
    found = diagnose(simulate.run(8, 40, seed=seed, noise=0.03, spikes=0.1)).findings
    assert [each for each in found if each.severity is not Severity.INFO] == []


def test_what_the_host_tells_in_each_step_counts_where_lateness_scatters() -> None:
    fault = Fault("straggler", "host_sync", (1,), 0.2)
    found = diagnose(simulate.run(2, 40, (fault,), seed=2, noise=0.2)).findings
    assert [(each.cause, each.ranks) for each in found] == [("host_sync", (1,))]


def test_a_little_more_work_is_no_more_for_one_far_step() -> None:
    faults = (Fault("straggler", "compute", (1,), 0.04), Fault("straggler", "compute", (1,), 2.0, first=11, last=12))
    found = diagnose(simulate.run(4, 40, faults, seed=5)).findings
    assert [each for each in found if len(each.steps) > 1] == []


def test_more_time_at_the_same_cpu_time_is_no_more_work() -> None:
    fault = Fault("straggler", "compute", (1,), 0.1)
    tables = simulate.run(2, 30, (fault,), seed=4, device=None)
    assert [each.cause for each in diagnose(tables).findings] == ["compute"]
    even = changed(tables, "thread_cpu_ms", lambda v, _rank, _step: np.full_like(v, np.median(v)))
    assert "compute" not in [each.cause for each in diagnose(even).findings]


def test_surely_is_below_the_median_by_two_errors() -> None:
    values = np.random.default_rng(1).normal(5, 1, 400)
    assert surely(values) == pytest.approx(5 - 2 * 1.2533 / 20, abs=0.15)
    assert surely(np.array([3.0, 3.0, 3.0, 90.0])) == 3
    assert np.isnan(surely(np.array([np.nan])))
