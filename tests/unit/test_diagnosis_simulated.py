# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import Severity, diagnose
from dtscope_jupyter.diagnosis.hang import overdue
from dtscope_jupyter.simulate import Fault


def said(tables: dict[str, pa.Table]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(finding.kind, finding.cause, finding.ranks) for finding in diagnose(tables).findings]


@pytest.mark.parametrize("world_size", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("device", [None, "NVIDIA H200"])
def test_a_healthy_cluster_has_nothing_to_report(world_size: int, device: str | None) -> None:
    assert said(simulate.run(world_size, 20, seed=world_size, device=device)) == []


@pytest.mark.parametrize(
    "cause", ["compute", "slow_device", "input", "host_stall", "host_sync", "host_to_device_copy", "garbage_collection"]
)
@pytest.mark.parametrize(("world_size", "rank"), [(2, 1), (4, 0), (16, 11)])
def test_a_straggler_is_named_with_its_cause(cause: str, world_size: int, rank: int) -> None:
    tables = simulate.run(world_size, 12, [Fault("straggler", cause, (rank,), 0.25)], seed=rank)
    assert said(tables) == [("straggler", cause, (rank,))]


def test_on_a_cpu_without_cpu_time_the_cause_is_compute() -> None:
    tables = simulate.run(4, 12, [Fault("straggler", "compute", (2,), 0.3)], device=None)
    place = tables["steps"].schema.get_field_index("thread_cpu_ms")
    tables["steps"] = tables["steps"].set_column(place, tables["steps"].schema.field(place), pa.nulls(len(tables["steps"]), pa.float64()))
    assert said(tables) == [("straggler", "compute", (2,))]


def test_a_straggler_that_begins_late_is_dated() -> None:
    (finding,) = diagnose(simulate.run(4, 40, [Fault("straggler", "compute", (2,), 0.3, first=17)])).findings
    assert finding.steps == tuple(range(17, 40))
    assert "since step 17" in finding.sentence


def test_a_straggler_that_heals_is_dated_to_its_end() -> None:
    (finding,) = diagnose(simulate.run(4, 40, [Fault("straggler", "compute", (2,), 0.3, first=10, last=22)])).findings
    assert finding.steps == tuple(range(10, 22))
    assert "to step 21" in finding.sentence


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_periodic_straggler_is_told_from_a_persistent_one(every: int) -> None:
    (finding,) = diagnose(simulate.run(4, 40, [Fault("straggler", "input", (1,), 0.5, first=4, every=every)])).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", "input", (1,))
    assert finding.steps == tuple(range(4, 40, every))
    assert f"every {every} steps" in finding.sentence


def test_two_stragglers_share_what_is_lost() -> None:
    faults = [Fault("straggler", "compute", (1,), 0.4), Fault("straggler", "input", (6,), 0.4)]
    findings = diagnose(simulate.run(8, 20, faults)).findings
    assert {(each.cause, each.ranks) for each in findings} == {("compute", (1,)), ("input", (6,))}
    assert sum(each.cost_ms for each in findings) == pytest.approx(0.4 * 50, rel=0.15)


def test_a_late_rank_and_a_slow_link_are_told_apart() -> None:
    faults = [Fault("straggler", "host_stall", (3,), 0.5), Fault("slow_link", "bandwidth", (), 25, first=10)]
    found = said(simulate.run(4, 30, faults, device=None, buckets=4))
    assert sorted(found) == [("slow_link", "bandwidth", (0, 1, 2, 3)), ("straggler", "host_stall", (3,))]


def test_the_cost_is_the_time_that_the_same_run_without_the_fault_does_not_take() -> None:
    healthy = diagnose(simulate.run(4, 20, seed=3)).step_ms
    sick = diagnose(simulate.run(4, 20, [Fault("straggler", "compute", (2,), 0.3)], seed=3))
    assert sick.findings[0].cost_ms == pytest.approx(sick.step_ms - healthy, rel=0.15)


def test_a_link_slow_from_the_start_is_known_by_its_sisters() -> None:
    group = tuple(range(1, 64, 8))
    assert said(simulate.run(64, 12, [Fault("slow_link", "bandwidth", group, 6)], tensor=8, gradient_bytes=2 * 2**30)) == [
        ("slow_link", "bandwidth", group)
    ]


def test_a_link_on_another_transport_is_known_by_the_hardware() -> None:
    assert said(simulate.run(4, 6, [Fault("slow_link", "transport", (), 12)], gradient_bytes=2**30)) == [
        ("slow_link", "transport", (0, 1, 2, 3))
    ]


def test_the_step_in_which_a_link_became_slow() -> None:
    (finding,) = diagnose(simulate.run(4, 40, [Fault("slow_link", "bandwidth", (), 4, first=21)], gradient_bytes=2**30)).findings
    assert finding.steps == tuple(range(21, 40))
    assert finding.evidence["since_step"] == 21


@pytest.mark.parametrize("cause", ["operation", "shape", "dtype", "order", "values"])
def test_a_desync_is_named(cause: str) -> None:
    assert said(simulate.run(4, 12, [Fault("desync", cause, (2,), first=5)])) == [("desync", cause, (2,))]


def test_a_desync_of_two_ranks_names_both() -> None:
    assert said(simulate.run(2, 12, [Fault("desync", "shape", (1,), first=5)])) == [("desync", "shape", (0, 1))]


def test_the_first_nonfinite_gradient() -> None:
    (finding,) = diagnose(simulate.run(4, 12, [Fault("nonfinite", "gradient", (2,), first=5)])).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("nonfinite", "gradient", (2,))
    assert finding.evidence == {
        "first_step": 5, "not_before": 5, "last_good_step": 4, "parameters": ["layers.1.weight"], "count": 7.0, "seen": "local gradients",
    }  # fmt: skip
    assert "in step 5 in layers.1.weight, before they are averaged" in finding.sentence


def test_a_nonfinite_loss() -> None:
    assert said(simulate.run(4, 12, [Fault("nonfinite", "loss", (0,), first=5)])) == [("nonfinite", "loss", (0,))]


@pytest.mark.parametrize("cause", ["host_stuck", "never_called", "process_died", "device_stuck"])
@pytest.mark.parametrize("ranks", [(1,), (0, 3)])
def test_a_hang_names_who_is_missing(cause: str, ranks: tuple[int, ...]) -> None:
    (finding,) = diagnose(simulate.run(6, 12, [Fault("hang", cause, ranks, first=5)])).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("hang", cause, ranks)
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence["waiting"] == [rank for rank in range(6) if rank not in ranks]


def test_a_stuck_host_is_named_with_its_line() -> None:
    (finding,) = diagnose(simulate.run(4, 12, [Fault("hang", "host_stuck", (3,), first=5)])).findings
    assert "train.py:77" in finding.sentence
    assert finding.advice.startswith("Look at the stack: the host waits for")


def test_of_a_stuck_host_without_a_stack_one_is_asked_for() -> None:
    tables = simulate.run(4, 12, [Fault("hang", "host_stuck", (3,), first=5)])
    unseen = tables["host"].filter(pa.compute.not_equal(tables["host"]["kind"], "stack"))
    (finding,) = diagnose({**tables, "host": unseen}).findings
    assert "train.py" not in finding.sentence
    assert finding.advice.startswith("While it hangs, attach to it and take its stack (`%dtscope capture stacks`): the host waits for")


def test_a_collective_is_overdue_after_five_seconds() -> None:
    tables = simulate.run(4, 12, [Fault("hang", "host_stuck", (3,), first=5)])
    pending = tables["collectives"].filter(pa.compute.equal(tables["collectives"]["state"], "scheduled"))
    since = int(np.min(pending["enqueue_ns"].to_numpy()))
    assert overdue(tables, since + 4_900_000_000) == []
    (stuck,) = overdue(tables, since + 5_100_000_000)
    assert (stuck.ranks, stuck.missing, stuck.operation) == ((0, 1, 2), (3,), "all_reduce")


def test_a_victim_of_a_hang_elsewhere_is_not_blamed() -> None:
    tables = simulate.run(8, 12, [Fault("hang", "host_stuck", (5,), first=5)], tensor=2)
    assert said(tables) == [("hang", "host_stuck", (5,))]


def test_strided_inputs_of_collectives() -> None:
    (finding,) = diagnose(simulate.run(4, 12, [Fault("implicit_copy", "non_contiguous", (1, 2))])).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("implicit_copy", "non_contiguous", (1, 2))
    assert finding.evidence["bytes_a_step"] == 200 * 2**20
    assert finding.evidence["line"] == "train.py:42"


def test_one_bucket_is_told_with_what_buckets_would_win() -> None:
    (finding,) = diagnose(simulate.run(4, 12, [Fault("low_overlap", "one_bucket")], gradient_bytes=2**30)).findings
    assert (finding.kind, finding.cause) == ("low_overlap", "one_bucket")
    assert 0 < finding.cost_ms <= finding.evidence["transfer_ms"]


def test_hosts_with_other_clocks_make_no_stragglers() -> None:
    assert said(simulate.run(16, 12, clock_spread_ms=500.0)) == []


def test_a_thousand_ranks_name_the_one() -> None:
    assert said(simulate.run(1024, 6, [Fault("straggler", "input", (777,), 0.3)], tensor=8)) == [("straggler", "input", (777,))]
