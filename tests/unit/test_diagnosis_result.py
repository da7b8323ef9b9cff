# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import CAUSES, Diagnosis, diagnose, straggler
from dtscope_jupyter.diagnosis.expect import expect
from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.run import Run as RealRun
from dtscope_jupyter.simulate import Fault

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
FAULTS = [
    [],
    [Fault("straggler", "compute", (2,), 0.3)],
    [Fault("slow_link", "bandwidth", (), 30, first=8)],
    [Fault("hang", "host_stuck", (1,), first=6)],
    [Fault("desync", "shape", (1,), first=6)],
    [Fault("desync", "values", (1,), first=6)],
    [Fault("nonfinite", "gradient", (0,), first=6)],
    [Fault("nonfinite", "loss", (0,), first=6)],
    [Fault("implicit_copy", "non_contiguous", (0, 1, 2, 3))],
    [Fault("insufficient_data", "missing_ranks", (1,))],
]


class Run:
    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self.tables = tables

    def diagnose(self) -> Diagnosis:
        return diagnose(self.tables)


@pytest.mark.parametrize("faults", FAULTS)
def test_every_report_fits_the_published_schema_and_json(faults: list[Fault]) -> None:
    report = diagnose(simulate.run(4, 16, faults)).to_dict()
    jsonschema.validate(report, SCHEMA)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_schema_refuses_a_cause_of_another_kind() -> None:
    report = diagnose(simulate.run(4, 16, FAULTS[1])).to_dict()
    report["findings"][0]["cause"] = "one_bucket"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)


def test_the_schema_knows_the_kinds_and_causes_of_the_code() -> None:
    rules = SCHEMA["$defs"]["finding"]["allOf"]
    assert {rule["if"]["properties"]["kind"]["const"]: tuple(rule["then"]["properties"]["cause"]["enum"]) for rule in rules} == CAUSES


def test_the_text_says_the_same_twice() -> None:
    first, second = (str(diagnose(simulate.run(4, 16, FAULTS[1]))) for _ in range(2))
    assert first == second
    assert first.splitlines()[1].startswith("!! Rank 2 is late: 15 ms more compute in each step since step 0.")


@pytest.mark.parametrize("faults", [
    [Fault("straggler", "compute", (2,), 0.3)],
    [Fault("straggler", "input", (1,), 0.2), Fault("straggler", "compute", (2,), 0.7)],
    [Fault("straggler", "host_stall", (0,), 0.5), Fault("straggler", "host_stall", (3,), 0.5)],
])  # fmt: skip
@pytest.mark.parametrize("device", ["H200", None])
def test_what_a_straggler_s_sentence_says_is_won_is_its_cost(faults: list[Fault], device: str | None) -> None:
    late = [each for each in diagnose(simulate.run(4, 16, faults, device=device)).findings if each.kind == "straggler"]
    assert late
    for each in late:
        step, told = each.evidence["step_ms"], each.evidence["told_ms"]
        assert each.sentence.endswith(f"a step takes {milliseconds(step - each.cost_ms)} instead of {milliseconds(step)}.")
        assert milliseconds(told) in each.sentence
        assert (f"lose {milliseconds(each.cost_ms)} by it" in each.sentence) == (milliseconds(told) != milliseconds(each.cost_ms))


def test_a_straggler_that_others_pay_less_for_than_it_does_more_says_both() -> None:
    evidence = {"step_ms": 98.0, "told_ms": 76.0}
    given = Finding("straggler", "compute", (1,), Severity.CRITICAL, 0.9, 32.0, (3,), evidence, "", "Rank 1 is late: 76 ms more compute.")
    said = "The others wait for it and lose 32 ms by it; without that a step takes 66 ms instead of 98 ms."
    assert straggler.priced(given).sentence == f"{given.sentence} {said}"


def test_counts_of_one_are_in_the_singular() -> None:
    assert str(Diagnosis([], [0], 1, 5.0)) == "1 rank, 1 step of 5.00 ms: nothing to report."


def test_a_healthy_run_says_so() -> None:
    assert str(diagnose(simulate.run(4, 16))) == "4 ranks, 16 steps, mean 54.1 ms, median 54.1 ms: nothing to report."


def test_diagnosis_and_report_count_the_same_steps_and_name_mean_and_median() -> None:
    tables = simulate.run(4, 16)
    slow = pc.and_(pc.equal(tables["steps"]["step"], 0), pc.is_valid(tables["steps"]["end_ns"]))
    begun = pc.if_else(slow, pc.subtract(tables["steps"]["start_ns"], 10**9), tables["steps"]["start_ns"])
    place = tables["steps"].column_names.index("start_ns")
    given = RealRun({**tables, "steps": tables["steps"].set_column(place, tables["steps"].schema.field(place), begun)})
    found, said = given.diagnose(), str(given.report())
    head = re.fullmatch(r"4 ranks, 16 steps, mean (\S+) ms, median (\S+) ms of the 15 judged: nothing to report.", str(found))
    assert head is not None
    assert "16 steps on 4 ranks" in said
    assert f"of a step of {head[1]} ms (mean; median {head[2]} ms)" in said
    assert float(head[1]) > float(head[2])
    assert (found.to_dict()["recorded_steps"], found.to_dict()["steps"]) == (16, 15)
    assert found.to_dict()["mean_step_ms"] == pytest.approx(float(head[1]), rel=0.01)


def test_the_picture_is_shown_where_somebody_draws_it() -> None:
    found = diagnose(simulate.run(4, 16, FAULTS[1]))
    assert set(found._repr_mimebundle_()[0]) == {"text/plain"}
    drawn = replace(found, picture=lambda each: str(len(each.findings)).encode())
    assert drawn._repr_mimebundle_()[0]["image/png"] == b"1"


def test_the_most_costly_comes_first() -> None:
    faults = [Fault("straggler", "input", (1,), 0.2, every=1), Fault("straggler", "compute", (6,), 0.7)]
    costs = [finding.cost_ms for finding in diagnose(simulate.run(8, 16, faults)).findings]
    assert costs == sorted(costs, reverse=True)
    assert len(costs) == 2


def test_expectations_that_hold_chain() -> None:
    run = Run(simulate.run(4, 16, FAULTS[1]))
    expect(run).straggler(rank=2).straggler(cause="compute").overlap_ratio(at_least=0.0).step_ms(at_most=100)
    expect(Run(simulate.run(4, 16))).no_findings()


@pytest.mark.parametrize(("check", "message"), [
    (lambda e: e.no_findings(), "expected no findings above info, found: Rank 2 is late"),
    (lambda e: e.straggler(rank=1), r"expected straggler of rank 1, found: straggler \(compute\) of ranks \[2\]"),
    (lambda e: e.hang(), r"expected hang, found: straggler"),
    (lambda e: e.overlap_ratio(at_least=0.99), r"overlap ratio is 0\.\d+, expected at least 0\.99"),
    (lambda e: e.step_ms(at_most=10), r"the median step takes [\d.]+ ms, expected at most 10 ms"),
])  # fmt: skip
def test_expectations_that_fail_say_what_was_found(check: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(expect(Run(simulate.run(4, 16, FAULTS[1]))))


def test_an_expectation_nobody_knows_is_an_error_of_the_caller() -> None:
    run = Run(simulate.run(4, 4))
    with pytest.raises(AttributeError, match="no expectation 'fast'"):
        expect(run).fast()
    with pytest.raises(DtscopeError, match="no severity 'loud'"):
        expect(run).no_findings(above="loud")
    with pytest.raises(DtscopeError, match="no kind of finding 'slow'"):
        expect(run).finding("slow")


def test_a_late_rank_that_costs_nothing_is_no_finding() -> None:
    """Where the host is busy all the time, as in steps bound by it, nothing can be won from a rank that comes last."""
    tables = dict(simulate.run(4, 30, [Fault("straggler", "compute", (2,))], seed=7))
    assert [each.kind for each in diagnose(tables).findings] == ["straggler"]
    steps = tables["steps"]
    longest = pc.max(pc.subtract(steps["end_ns"], steps["start_ns"])).as_py() / 1e6
    place = steps.schema.get_field_index("compute_ms")
    tables["steps"] = steps.set_column(place, steps.schema.field(place), pa.array([longest] * len(steps), pa.float64()))
    assert not [each for each in diagnose(tables).findings if each.kind == "straggler"]
