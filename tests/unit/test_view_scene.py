# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What is chosen to be shown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from analysis_rows import collective, counted, two_ranks
from analysis_rows import tables as rows

from dtscope_jupyter import simulate
from dtscope_jupyter.analysis.compare import compare
from dtscope_jupyter.diagnosis import diagnose
from dtscope_jupyter.diagnosis.finding import Finding, Severity
from dtscope_jupyter.diagnosis.result import Diagnosis
from dtscope_jupyter.view.scene.build import Scene, scene
from dtscope_jupyter.view.scene.choose import telling_ranks, telling_step
from dtscope_jupyter.view.scene.gradients import gradients
from dtscope_jupyter.view.scene.matrix import Matrix, strong_end
from dtscope_jupyter.view.scene.progress import ABSENT, DONE, UNKNOWN, WAITING, Stuck, progress
from dtscope_jupyter.view.scene.words import caption, checks, headline, measured
from tests.view_tables import ORIGIN, STEP_NS, ddp, stuck, tables


def made(values: list[list[float]], exact: bool = False) -> Matrix:  # noqa: FBT001, FBT002
    array = np.array(values)
    ranks, steps = list(range(array.shape[0])), list(range(10, 10 + array.shape[1]))
    return Matrix(ranks, steps, array, np.full(array.shape, exact), np.zeros(array.shape, bool))


def shown(**options: int) -> Scene:
    return scene(ddp(**options), Diagnosis([], [0, 1, 2, 3], 12, 100.0))


class TestMatrix:
    def test_pools_to_the_largest(self) -> None:
        pooled = made([[1, 2, 9], [4, math.nan, 6], [7, 8, 3]]).pooled(2, 2)
        assert pooled.values.tolist() == [[4, 9], [8, 3]]
        assert (pooled.down, pooled.across) == (2, 2)

    def test_keeps_what_is_unknown(self) -> None:
        assert np.isnan(made([[math.nan, math.nan]]).pooled(1, 1).values).all()

    @pytest.mark.parametrize(("values", "step_ms", "end"), [([0.1], 58, 6), ([24, 25.7], 86, 30), ([], 0, 0.01), ([5], math.nan, 5)])
    def test_scale_ends_round_and_not_below_a_tenth_of_a_step(self, values: list[float], step_ms: float, end: float) -> None:
        assert strong_end(np.array(values, float), step_ms) == pytest.approx(end)

    def test_scale_of_a_short_run_leaves_a_warm_up_out(self) -> None:
        values = np.full((4, 12), 8.0)
        values[:, 0] = 600.0
        assert strong_end(values, 40.0) == 8.0

    def test_scale_keeps_what_lasts(self) -> None:
        values = np.full((4, 12), 8.0)
        values[:, 6:] = 30.0
        assert strong_end(values, 40.0) == 30.0


def test_the_first_step_does_not_stretch_the_scale_however_few_steps_are_known() -> None:
    values = np.full((2, 100), np.nan)
    values[:, ::16] = 20.0
    values[:, 0] = 4200.0
    assert strong_end(values, 40.0) == 20.0


class TestEstimates:
    """One step in four is timed; of the others only the exposed time is known."""

    def test_every_step_is_on_the_map_and_the_timed_ones_are_marked(self) -> None:
        found = scene(rows(**counted(8)), None)
        assert found.exposed.steps == list(range(8))
        assert not np.isnan(found.exposed.values).any()
        assert found.exposed.best.tolist() == [[step in (3, 7) for step in range(8)]] * 2
        assert found.exposed.pooled(2, 2).best.all()

    def test_the_telling_step_is_a_timed_one(self) -> None:
        found = scene(rows(**counted(8)), None)
        assert found.chosen is not None
        assert found.chosen.step in (3, 7)
        assert found.timeline is not None

    def test_means_are_of_the_steps_in_which_each_is_known(self) -> None:
        numbers = scene(rows(**counted(8)), None).numbers
        assert numbers["comm_ms"].tolist() == [36, 26]
        assert numbers["exposed_ms"].tolist() == [(1 + 2 + 3 + 5 + 6 + 7 + 16) / 8, (11 + 12 + 13 + 15 + 16 + 17 + 16) / 8]
        assert numbers["wait_ms"].tolist() == [10, 0]

    def test_steps_of_which_nothing_is_known_stay_on_the_map_and_are_told(self) -> None:
        given = counted(8)
        for row in given["steps"]:
            row["exposed_ms"] = row["exposed_ms"] if row["step"] in (3, 7) else None
        found = scene(rows(**given), None)
        assert found.exposed.steps == list(range(8))
        assert np.isnan(found.exposed.values).sum() == 12
        assert found.exposed.partly
        assert caption(found).endswith("of 2 timed steps of 8")
        assert not scene(rows(**two_ranks(4)), None).exposed.partly

    def test_a_collective_of_the_programs_own_in_another_step_does_not_add_to_the_wait(self) -> None:
        given = counted(8)
        given["collectives"] += [collective(rank, 100, 30 + 20 * rank, 60, step=0) for rank in range(2)]
        found = scene(rows(**given), None)
        assert found.numbers["wait_ms"].tolist() == [10, 0]
        assert found.exposed.values[:, 0].tolist() == [1, 11]
        said = {name: value for name, _, value, _, _ in compare(rows(**given), rows(**given))}
        assert said["wait"] == 5

    def test_the_ratio_is_that_of_all_ranks_together(self) -> None:
        found = scene(rows(**counted(8)), None)
        numbers = found.numbers.assign(comm_ms=[10.0, 90.0], overlap_ratio=[1.0, 0.0])
        assert "overlap ratio 0.10 in" in measured(replace(found, numbers=numbers))

    @pytest.mark.parametrize(("apart", "agree"), [(1e-4, True), (1e-2, False)])
    def test_gradients_agree_to_rounding(self, apart: float, agree: bool) -> None:  # noqa: FBT001
        given = two_ranks(4)
        for row in given["steps"]:
            row["synced_norm"] = 1.0 + apart * row["rank"]
        for row in given["collectives"]:
            row |= {"bytes": 4 * 2**20, "phase": "backward", "operation": "all_reduce"}
        assert scene(rows(**given), None).agree is agree

    def test_words_say_how_many_steps_the_ratio_is_of(self) -> None:
        assert measured(scene(rows(**counted(8)), None)).endswith("overlap ratio 0.74 in 2 timed steps of 8.")
        alone = scene(rows(**counted(3)), None)
        assert measured(alone) == "Exposed communication 7.00 ms a step, 7.78 % of a step of 90.0 ms."
        assert alone.timeline is None


class TestStep:
    def test_is_the_median_where_nothing_is_blamed(self) -> None:
        chosen = telling_step(made([[5, 1, 3]]), None)
        assert chosen is not None
        assert (chosen.step, chosen.why) == (12, "the median of 3 by exposed communication")

    def test_is_the_dearest_of_those_blamed(self) -> None:
        chosen = telling_step(made([[9, 1, 3]]), [11, 12])
        assert chosen is not None
        assert (chosen.step, chosen.why) == (12, "the worst of 2")

    def test_is_none_where_nothing_has_times(self) -> None:
        assert telling_step(made([[math.nan]]), None) is None


class TestRanks:
    def test_are_all_where_they_are_few(self) -> None:
        assert telling_ranks([0, 1, 2], [], [1, 2, 3], 12) == [0, 1, 2]

    def test_hold_the_named_the_dearest_and_the_cheapest(self) -> None:
        cost = [1.0] * 100
        cost[40], cost[60] = 9.0, 0.0
        kept = telling_ranks(list(range(100)), [77], cost, 8)
        assert {40, 60, 77} <= set(kept)
        assert len(kept) == 8
        assert kept == sorted(kept)


class TestScene:
    def test_names_who_came_last_and_by_how_much(self) -> None:
        late = Finding("straggler", "compute", (2,), Severity.CRITICAL, 0.9, 20.0, tuple(range(6, 12)), {}, "", "")
        call = scene(ddp(late=2), Diagnosis([late], [0, 1, 2, 3], 12, 100.0)).calls[0]
        assert (call.last, call.late_ms, call.lost_ms) == (2, 20.0, 60.0)

    @pytest.mark.parametrize(("steps", "chosen"), [((3, 4), 3), ((5,), 7)])
    def test_shows_a_timed_step_of_a_finding_that_costs_little(self, steps: tuple[int, ...], chosen: int) -> None:
        little = Finding("straggler", "compute", (1,), Severity.INFO, 0.9, 0.1, steps, {}, "", "")
        given = counted(12)
        for row in given["collectives"]:
            row["end_ns"] += 1_000_000 * (row["rank"] == 0 and row["step"] == 11)
        found = scene(rows(**given), Diagnosis([little], [0, 1], 12, 100.0))
        assert found.chosen is not None
        assert found.chosen.step == chosen

    def test_of_ranks_that_exchange_nothing_says_so_and_not_that_they_agree(self) -> None:
        rows_of = [{**row, "synced_norm": 1.0} for row in two_ranks()["steps"]]
        found = scene(rows(steps=rows_of), Diagnosis([], [0, 1], 3, 90.0))
        assert (found.alone, found.agree) == (True, None)
        assert "each rank trained by itself" in headline(found)[1]
        assert headline(found)[2] == "info"
        one = scene(rows(steps=[row for row in rows_of if row["rank"] == 0]), None)
        assert measured(one) == "No communication with times was seen."

    def test_leaves_out_a_step_that_never_ended(self) -> None:
        given = ddp(2, 4)
        begun = {"rank": 0, "step": 4, "seq": 4, "process_group": "0", "operation": "all_reduce", "source": "host",
                 "start_ns": ORIGIN + 4 * STEP_NS, "end_ns": ORIGIN + 5 * STEP_NS}
        given["collectives"] = type(given["steps"]).from_pylist([*given["collectives"].to_pylist(), begun], given["collectives"].schema)
        assert scene(given, None).exposed.steps == [0, 1, 2, 3]

    def test_lanes_of_the_chosen_step_add_up(self) -> None:
        found = shown(exposed_ms=10).timeline
        assert found is not None
        lane = found.lanes[0]
        assert (lane.exposed[1] - lane.exposed[0]).sum() == 10_000_000
        assert (lane.overlapped[1] - lane.overlapped[0]).sum() == 20_000_000

    def test_says_what_it_does_not_know(self) -> None:
        assert headline(scene(tables(), None)) == ("Nothing was recorded.", "", "none")
        assert headline(scene(ddp(), None))[0] == "Measured, not judged: 12 steps on 4 ranks."
        assert headline(shown())[0] == "No finding in 12 steps on 4 ranks."
        alone = simulate.run(2, 1, seed=1)
        sentence, detail, _ = headline(scene(alone, diagnose(alone)))
        assert "too few for a verdict" in sentence
        assert detail.startswith("Record at least three whole steps")

    def test_one_slow_step_does_not_make_the_share_exceed_the_step(self) -> None:
        ends = {0: 1, 1: 2, 2: 11}
        spans = [(rank, step, ORIGIN + step * STEP_NS, ORIGIN + end * STEP_NS) for rank in (0, 1) for step, end in ends.items()]
        steps = [{"rank": r, "step": n, "start_ns": a, "end_ns": b, "source": "event"} for r, n, a, b in spans]
        waits = [{"rank": r, "step": n, "kind": "collective_wait", "start_ns": a, "end_ns": b} for r, n, a, b in spans]
        called = [{**row, "seq": row["step"], "process_group": "0", "operation": "all_reduce"} for row in steps]
        said = measured(scene(tables(steps=steps, host=waits, collectives=called), None))
        assert "100 % of a step" in said

    def test_says_first_how_a_run_ended(self) -> None:
        failed = Diagnosis([], [0, 1], 12, 100.0, ended="Rank 1 raised ValueError: bad batch.", remarks=("Several jobs.",))
        found = scene(ddp(), failed)
        sentence, detail, severity = headline(found)
        assert (sentence, severity) == ("Rank 1 raised ValueError: bad batch.", "critical")
        assert detail.startswith("No finding in 12 steps on 4 ranks.")
        assert (False, "Several jobs.") in checks(found)

    def test_checks_only_what_was_counted(self) -> None:
        assert checks(shown()) == [(True, "synchronised gradients agree on all ranks"), (True, "no NaN or infinite gradient")]
        assert checks(scene(stuck(), None)) == []


class TestGradients:
    def test_groups_by_module_until_they_are_few(self) -> None:
        found = gradients(ddp(2, 2, parameters=30), rows=8)
        assert found is not None
        assert len(found.groups) == 1
        assert found.norms[0, 0] == pytest.approx(math.sqrt(sum((0.01 * 3**i) ** 2 for i in range(30))))

    def test_takes_the_step_that_a_finding_is_about(self) -> None:
        rows = [{"rank": 0, "step": step, "parameter_id": 0, "local_norm": float(step)} for step in (2, 5, 9)]
        assert [found.step for near in (None, 3, 99) if (found := gradients(tables(gradients=rows), near))] == [9, 5, 9]

    def test_keeps_a_norm_that_is_not_finite(self) -> None:
        rows = [{"rank": 0, "step": 1, "parameter_id": i, "local_norm": value} for i, value in enumerate((1.0, math.nan, math.inf))]
        found = gradients(tables(gradients=rows))
        assert found is not None
        assert [str(value) for value in found.norms[:, 0]] == ["1.0", "nan", "inf"]


class TestProgress:
    def test_tells_who_waits_and_who_never_called(self) -> None:
        found = progress(stuck(4, culprit=3, seq=30))
        assert found is not None
        assert found.seqs[-1] == 30
        assert found.states[:, -1].tolist() == [WAITING, WAITING, WAITING, ABSENT]
        assert (found.states[:, :-1] == DONE).all()

    def test_takes_the_groups_counters_where_rows_are_gone(self) -> None:
        rows = [{"rank": 0, "process_group": "7", "seq": 50, "operation": "all_reduce", "state": "scheduled"}]
        groups = [{"rank": rank, "process_group": "7", "last_enqueued": last, "last_completed": 49} for rank, last in ((0, 50), (1, 49))]
        found = progress(tables(collectives=rows, groups=groups))
        assert found is not None
        assert found.states[:, -1].tolist() == [WAITING, ABSENT]
        assert found.states[:, 0].tolist() == [DONE, DONE]

    def test_believes_the_finding_after_the_job_was_ended(self) -> None:
        given = stuck(2, culprit=1, seq=5)
        ended = [row | {"state": "completed"} for row in given["collectives"].to_pylist()]
        found = progress(tables(collectives=ended), Stuck("0", 5, [0]))
        assert found is not None
        assert found.states[:, -1].tolist() == [WAITING, ABSENT]

    def test_calls_unknown_what_no_dump_tells(self) -> None:
        waiting = {"process_group": "0", "operation": "all_reduce", "state": "scheduled"}
        found = progress(tables(collectives=[waiting | {"rank": 0, "seq": 8}, waiting | {"rank": 1, "seq": 9}]))
        assert found is not None
        assert found.states.tolist() == [[WAITING, ABSENT], [UNKNOWN, WAITING]]


def test_a_real_diagnosis_fits() -> None:
    given = ddp(4, 24, late=2)
    found = scene(given, diagnose(given))
    assert found.findings
    assert found.blamed == [2]
