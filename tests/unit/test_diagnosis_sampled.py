# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Runs on devices, of which only one step in sixteen has rows of its collectives; durations and exposed time are there for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import Severity, diagnose
from dtscope_jupyter.diagnosis.blame import CATEGORIES
from dtscope_jupyter.simulate import Fault

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis import Finding


def findings(*faults: Fault, world_size: int = 4, steps: int = 80, **program: Any) -> list[Finding]:
    return diagnose(simulate.run(world_size, steps, faults, sampled=16, **program)).findings


def test_only_sampled_steps_have_collectives_and_all_have_exposed_time() -> None:
    tables = simulate.run(4, 40, sampled=16)
    assert set(tables["collectives"]["step"].to_pylist()) == {0, 16, 32}
    assert tables["steps"]["exposed_ms"].null_count == 0
    assert tables["steps"]["compute_ms"].null_count == 37 * 4


@pytest.mark.parametrize("spikes", [0.0, 0.05])
@pytest.mark.parametrize("world_size", [4, 16])
def test_a_healthy_run_has_nothing_loud(world_size: int, spikes: float) -> None:
    found = findings(world_size=world_size, spikes=spikes, seed=world_size)
    assert [each for each in found if each.severity is not Severity.INFO] == []


@pytest.mark.parametrize(
    "cause", ["compute", "slow_device", "input", "host_stall", "host_sync", "host_to_device_copy", "garbage_collection"]
)
@pytest.mark.parametrize(("world_size", "rank"), [(2, 1), (4, 0), (16, 11)])
def test_a_straggler_in_each_step_is_named_with_its_cost(cause: str, world_size: int, rank: int) -> None:
    (finding,) = findings(Fault("straggler", cause, (rank,), 0.3, first=3), world_size=world_size, seed=rank)
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", cause, (rank,))
    assert finding.cost_ms == pytest.approx(15, rel=0.15)
    assert finding.steps == tuple(range(3, 80))
    assert finding.severity is Severity.CRITICAL


@pytest.mark.parametrize(("first", "grade"), [(40, Severity.CRITICAL), (3, Severity.INFO)])
def test_a_large_loss_counts_before_a_step_is_sampled_if_it_began_in_the_run(first: int, grade: Severity) -> None:
    """One step in 256 has its collectives; who was late from the beginning might only have another part in the same work."""
    tables = simulate.run(2, 70, [Fault("straggler", "compute", (1,), 0.6, first=first)], sampled=256)
    (finding,) = diagnose(tables, live=True).findings
    assert (finding.kind, finding.cause, finding.ranks, finding.severity) == ("straggler", "compute", (1,), grade)


def slow_for_a_while(scatter: float, sampled: int) -> dict[str, pa.Table]:
    """Rank 0 comes 24 ms of 53 later in steps 20 to 59, give or take a share; its thread uses more CPU time, as slow CPUs do."""
    tables = dict(simulate.run(2, 80, sampled=sampled))
    steps = tables["steps"].to_pandas()
    random = np.random.default_rng(1)
    late = np.where((np.arange(80) >= 20) & (np.arange(80) < 60), 24 * (1 + scatter * random.standard_normal(80)), 0.0)
    added = late[steps["step"]]
    shift = (np.cumsum(late) * 1e6).astype(np.int64)[steps["step"]]
    for name in ("end_ns", "backward_end_ns", "optimizer_start_ns", "optimizer_end_ns"):
        steps[name] += shift
    for name in ("start_ns", "backward_start_ns"):
        steps[name] += shift - (added * 1e6).astype(np.int64)
    steps["exposed_ms"] += np.where(steps["rank"] == 1, added, 0.0)
    steps["thread_cpu_ms"] += np.where(steps["rank"] == 0, added * 0.6, 0.0)
    return tables | {"steps": pa.Table.from_pandas(steps, tables["steps"].schema, preserve_index=False)}


@pytest.mark.parametrize("last", [44, 59])
def test_a_host_that_is_slow_for_a_while_is_no_fault_and_a_device_that_has_more_to_do_is(last: int) -> None:
    def until(scatter: float) -> list[tuple[str, tuple[int, ...]]]:
        tables = slow_for_a_while(scatter, sampled=256)
        tables["steps"] = tables["steps"].filter(pa.compute.less_equal(tables["steps"]["step"], last))
        return [(each.cause, each.ranks) for each in diagnose(tables, live=True).findings if each.severity is not Severity.INFO]

    assert until(scatter=0.3) == []
    assert until(scatter=0.01) == [("compute", (0,))]


def exposed_when_sampled(every: int, *faults: Fault, **program: Any) -> list[Finding]:
    """As under FSDP2: exposed time too is known of sampled steps alone."""
    tables = dict(simulate.run(2, 66, faults, sampled=every, **program))
    steps = tables["steps"]
    known = pa.compute.is_in(steps["step"], pa.array(range(0, 66, every)))
    place = steps.schema.get_field_index("exposed_ms")
    tables["steps"] = steps.set_column(
        place, steps.schema.field(place), pa.compute.if_else(known, steps["exposed_ms"], pa.scalar(None, pa.float64()))
    )
    return diagnose(tables, live=True).findings


@pytest.mark.parametrize("every", [4, 8])
@pytest.mark.parametrize("cause", ["compute", "slow_device", "host_stall", "input"])
def test_sampling_is_no_rhythm_where_only_sampled_steps_have_exposed_time(cause: str, every: int) -> None:
    (finding,) = exposed_when_sampled(every, Fault("straggler", cause, (1,), 0.3))
    assert (finding.kind, finding.cause, finding.ranks, finding.severity) == ("straggler", cause, (1,), Severity.CRITICAL)
    assert finding.evidence["pattern"] == "each step"
    assert "in each step since step" in finding.sentence


@pytest.mark.parametrize("every", [4, 8])
@pytest.mark.parametrize("share", [0.02, 0.05])
@pytest.mark.parametrize("cause", ["compute", "slow_device"])
def test_a_little_more_work_is_no_fault_where_only_sampled_steps_have_exposed_time(cause: str, share: float, every: int) -> None:
    assert exposed_when_sampled(every, Fault("straggler", cause, (1,), share)) == []


@pytest.mark.parametrize("every", [4, 8])
def test_spikes_are_no_fault_where_only_sampled_steps_have_exposed_time(every: int) -> None:
    found = exposed_when_sampled(every, spikes=0.1) + exposed_when_sampled(every, spikes=0.3)
    assert [each for each in found if each.severity is not Severity.INFO] == []


def test_the_first_step_alone_tells_nothing_of_buckets() -> None:
    """In it DDP has those of the order of declaration; the next is not sampled yet."""
    fault = Fault("low_overlap", "one_bucket")
    assert findings(fault, steps=12, gradient_bytes=2**30) == []
    (finding,) = findings(fault, steps=40, gradient_bytes=2**30)
    assert (finding.kind, finding.cause) == ("low_overlap", "one_bucket")


@pytest.mark.parametrize("cause", ["compute", "input", "host_stall", "host_sync", "garbage_collection"])
def test_a_stall_every_tenth_step_is_named_although_no_such_step_was_sampled(cause: str) -> None:
    (finding,) = findings(Fault("straggler", cause, (2,), 1.5, first=3, every=10))
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", cause, (2,))
    assert finding.steps == tuple(range(3, 80, 10))
    assert "every 10 steps" in finding.sentence
    assert finding.severity is Severity.WARNING


def test_one_stall_in_one_step_is_dated() -> None:
    (finding,) = findings(Fault("straggler", "host_stall", (1,), 4.0, first=37, last=38))
    assert (finding.cause, finding.ranks, finding.steps) == ("host_stall", (1,), (37,))
    assert "in step 37" in finding.sentence


@pytest.mark.parametrize("first", [4, 30, 37])
def test_a_link_that_became_slow_is_dated_to_the_step(first: int) -> None:
    (finding,) = findings(Fault("slow_link", "bandwidth", (), 8, first=first), gradient_bytes=2**30, world_size=8)
    assert (finding.kind, finding.cause, finding.ranks) == ("slow_link", "bandwidth", tuple(range(8)))
    assert finding.evidence["since_step"] == first


def test_two_faults_at_once_are_told_apart_and_cost_no_more_than_was_lost() -> None:
    faults = [Fault("straggler", "host_stall", (1,), 0.4), Fault("straggler", "compute", (3,), 0.5, first=20)]
    found = findings(*faults)
    assert {(each.cause, each.ranks) for each in found} == {("host_stall", (1,)), ("compute", (3,))}
    tables = simulate.run(4, 80, faults, sampled=16)["steps"].to_pandas()
    lost = float(np.mean(tables["end_ns"] - tables["start_ns"])) / 1e6 - 53
    assert sum(each.cost_ms * len(each.steps) / 80 for each in found) <= lost


def test_a_gradient_gone_bad_between_two_looks_is_dated_to_the_interval() -> None:
    (finding,) = findings(Fault("nonfinite", "gradient", (2,), first=20))
    assert (finding.kind, finding.cause, finding.ranks) == ("nonfinite", "gradient", (0, 1, 2, 3))
    assert (finding.evidence["last_good_step"], finding.evidence["not_before"], finding.evidence["first_step"]) == (16, 17, 32)
    assert "between steps 17 and 32 (step 16 is known to be good" in finding.sentence
    assert "which of them began it was not looked at" in finding.sentence


def test_gradients_that_went_apart_between_two_looks_are_dated_to_the_interval() -> None:
    (finding,) = findings(Fault("desync", "values", (1,), first=20))
    assert (finding.kind, finding.cause, finding.ranks) == ("desync", "values", (1,))
    assert (finding.evidence["last_equal_step"], finding.evidence["step"]) == (16, 32)
    assert "between 17 and 32 (in step 16 they agreed)" in finding.sentence


@pytest.mark.parametrize(("sampled", "first", "interval"), [(1, 7, (7, 7)), (16, 20, (17, 32))])
def test_a_gradient_made_bad_after_the_average_names_the_one_rank(sampled: int, first: int, interval: tuple[int, int]) -> None:
    tables = dict(simulate.run(4, 80, sampled=sampled))
    steps = tables["steps"]
    at, seen = steps["step"].to_numpy(), -(-first // sampled) * sampled
    bad = (steps["rank"].to_numpy() == 1) & (at >= seen) & (at % sampled == 0)
    place = steps.schema.get_field_index("synced_norm")
    norms = pa.compute.if_else(pa.array(bad), float("nan"), steps["synced_norm"])
    tables["steps"] = steps.set_column(place, steps.schema.field(place), norms)
    (finding,) = diagnose(tables).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("nonfinite", "gradient", (1,))
    assert (finding.evidence["not_before"], finding.evidence["first_step"]) == interval
    assert "after they were averaged; the other ranks' are finite" in finding.sentence


@pytest.mark.parametrize("sampled", [1, 16])
@pytest.mark.parametrize("cause", ["compute", "input", "host_stall"])
def test_live_a_finding_goes_when_its_fault_has_healed(sampled: int, cause: str) -> None:
    fault = Fault("straggler", cause, (2,), 0.5, first=10, last=40)
    run = simulate.run(4, 80, [fault], sampled=sampled)

    def until(step: int) -> list[tuple[str, str]]:
        newest = {
            name: table.filter(pa.compute.less_equal(table["step"], step)) for name, table in run.items() if "step" in table.column_names
        }
        return [(each.kind, each.cause) for each in diagnose({**run, **newest}, live=True).findings]

    assert until(9) == []
    assert until(30) == [("straggler", cause)]
    assert until(39) == [("straggler", cause)]
    assert until(79) == []
    assert [(each.kind, each.cause) for each in diagnose(run).findings] == [("straggler", cause)]


@pytest.mark.parametrize("cause", ["compute", "host_stall", "input"])
def test_a_profiler_window_over_a_few_steps_hides_no_straggler(cause: str) -> None:
    """As a live run takes them: its steps are marked, and of the others there are no kernels."""
    fault = Fault("straggler", cause, (1,), 0.3, first=3)
    tables = dict(simulate.run(2, 60, [fault], sampled=16, spans=True))
    inside = pa.compute.is_in(tables["spans"]["step"], pa.array([11, 12]))
    tables["spans"] = tables["spans"].filter(inside)
    steps = tables["steps"]
    disturbed = pa.compute.is_in(steps["step"], pa.array([11, 12, 13]))
    tables["steps"] = steps.set_column(steps.schema.get_field_index("disturbed"), steps.schema.field("disturbed"), disturbed)
    (finding,) = [each for each in diagnose(tables).findings if each.severity is not Severity.INFO]
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", cause, (1,))


def test_what_is_said_of_a_ranks_time_are_kinds_of_work_alone() -> None:
    (finding,) = findings(Fault("straggler", "compute", (1,), 0.3, first=3), world_size=2)
    assert set(finding.evidence["excess_ms"]) <= {*CATEGORIES, "own", "compute", "copy", "launch"}


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_step_that_only_some_ranks_recorded_tells_no_transfer() -> None:
    tables = dict(simulate.run(4, 80, sampled=16))
    rows = tables["collectives"]
    lacking = pa.compute.and_(pa.compute.equal(rows["step"], 64), pa.compute.less(rows["rank"], 2))
    tables["collectives"] = rows.filter(pa.compute.invert(lacking))
    assert [each for each in diagnose(tables).findings if each.severity is not Severity.INFO] == []
