# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Overlap against counting every nanosecond, on kernels, on recorded steps and under each `by`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from analysis_rows import BASE, at, collective, kernel, step, tables, two_ranks, wait
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter.analysis.overlap import overlap
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    import pandas as pd

_MS = 1e6
_COLUMNS = ["comm_ms", "compute_ms", "overlap_ms", "exposed_ms", "overlap_ratio", "source"]


def _points(rows: list[dict[str, Any]]) -> set[int]:
    return {time for row in rows for time in range(row["start_ns"], row["end_ns"])}


_KERNEL = st.fixed_dictionaries({
    "rank": st.integers(0, 2),
    "kind": st.sampled_from(["comm", "compute", "memcpy"]),
    "start": st.integers(0, 60),
    "length": st.integers(0, 20),
    "step": st.sampled_from([None, 0, 1]),
    "operation": st.sampled_from(["all_reduce", "all_gather"]),
    "phase": st.sampled_from([None, "forward", "backward"]),
})


def _span(given: dict[str, Any]) -> dict[str, Any]:
    row = {key: given[key] for key in ("rank", "kind", "step", "phase")} | {"name": given["kind"], "stream": 1}
    if given["kind"] == "comm":
        row |= {"operation": given["operation"], "process_group": "0"}
    start = BASE + given["start"]
    return row | {"start_ns": start, "end_ns": start + given["length"]}


@settings(max_examples=80, deadline=None)
@given(st.lists(_KERNEL, max_size=14), st.sampled_from([("rank",), ("rank", "step"), ("rank", "operation"), ("rank", "step", "phase")]))
def test_against_counting_every_nanosecond(given: list[dict[str, Any]], by: tuple[str, ...]) -> None:
    spans = [_span(row) for row in given]
    frame = overlap(tables(spans=spans), list(by)).astype(object)
    phases = any(row["kind"] == "compute" and row["phase"] is not None for row in spans)
    for row in frame.where(frame.notna(), None).to_dict("records"):
        comm = [span for span in spans if span["kind"] == "comm" and all(span.get(key) == row[key] for key in by)]
        computing = [span for span in spans if span["kind"] == "compute" and span["rank"] == row["rank"]]
        keys = [key for key in by if key == "step" or (key == "phase" and phases)]
        own = [span for span in computing if all(span[key] == row[key] for key in keys)]
        busy = _points(computing)
        expected = [len(_points(comm)), len(_points(own)), len(_points(comm) & busy), len(_points(comm) - busy)]
        assert [row[name] * _MS for name in _COLUMNS[:4]] == pytest.approx(expected, abs=1e-6)
        if expected[0]:
            assert row["overlap_ratio"] == pytest.approx(expected[2] / expected[0])
        else:
            assert row["overlap_ratio"] is None
    seen = {tuple(span[key] for key in by) for span in spans if span["kind"] == "comm" and ("step" not in by or span["step"] is not None)}
    shown = {tuple(row[key] for key in by) for row in frame.where(frame.notna(), None).to_dict("records")}
    assert seen <= shown
    assert len(shown) == len(frame)


def test_recorded_steps_of_a_cpu_job() -> None:
    frame = overlap(tables(**two_ranks()))
    assert list(frame.columns) == ["rank", *_COLUMNS]
    assert frame["comm_ms"].tolist() == [108, 78]
    assert frame["compute_ms"].tolist() == [246, 246]
    assert frame["exposed_ms"].tolist() == [24, 24]
    assert frame["overlap_ratio"].tolist() == pytest.approx([84 / 108, 54 / 78])
    assert frame["source"].tolist() == ["event", "event"]


def test_without_rank_the_milliseconds_are_means_over_ranks() -> None:
    frame = overlap(tables(**two_ranks()), by="step")
    assert frame["step"].tolist() == [0, 1, 2]
    assert frame["comm_ms"].tolist() == [31, 31, 31]
    assert frame["overlap_ratio"].tolist() == pytest.approx([23 / 31] * 3)


def _figures(frame: pd.DataFrame, rank: int, number: int) -> list[float]:
    row = frame[(frame["rank"] == rank) & (frame["step"] == number)]
    return row[_COLUMNS[:4]].to_numpy().tolist()[0]


def test_a_profiled_step_counts_by_its_kernels_and_the_others_as_recorded() -> None:
    rows = two_ranks()
    spans = [kernel(0, "comm", 110, 120, step=1), kernel(0, "compute", 115, 130, step=1)]
    frame = overlap(tables(**rows, spans=spans), ["rank", "step"])
    assert _figures(frame, 0, 1) == [10, 15, 5, 5]
    assert _figures(frame, 0, 0) == [36, 82, 28, 8]
    assert frame["source"].tolist() == ["event", "profiler", "event", "event", "event", "event"]
    assert overlap(tables(**rows, spans=spans))["source"].tolist() == ["event, profiler", "event"]


def test_of_thinned_steps_the_ranks_own_figures_stand() -> None:
    rows = two_ranks(2)
    rows["collectives"] = [row for row in rows["collectives"] if (row["rank"], row["step"]) != (1, 0)]
    rows["steps"] = [row | {"comm_ms": 7.0, "compute_ms": 20.0, "overlap_ms": 3.0, "exposed_ms": 4.0} for row in rows["steps"]]
    frame = overlap(tables(**rows), ["rank", "step"])
    assert _figures(frame, 1, 0) == [7, 20, 3, 4]
    assert _figures(frame, 0, 0) == [36, 82, 28, 8]


def test_a_profile_of_a_cpu_job_counts_operators() -> None:
    def host(kind: str, name: str, thread: int, start: float, end: float) -> dict[str, Any]:
        return {"rank": 0, "step": 0, "kind": kind, "name": name, "thread": thread, "start_ns": at(start), "end_ns": at(end)}

    spans = [
        host("cpu_op", "aten::mm", 1, 0, 40), host("cpu_op", "c10d::allreduce_", 1, 40, 42), host("cpu_op", "aten::add", 2, 0, 99),
        host("comm", "gloo:all_reduce", 2, 30, 60),
    ]
    called = [collective(0, 0, 30, 60, step=0, source="profiler")]
    frame = overlap(tables(spans=spans, steps=[step(0, 0, 0, 100, source="profiler")], collectives=called))
    assert frame[_COLUMNS[:4]].to_numpy().tolist() == [[30, 40, 10, 20]]


def test_communication_that_runs_on_into_the_next_step_is_hidden_by_its_compute() -> None:
    spans = [kernel(0, "comm", 5, 15, step=0), kernel(0, "compute", 0, 5, step=0), kernel(0, "compute", 10, 20, step=1)]
    frame = overlap(tables(spans=spans), ["rank", "step"])
    assert frame["overlap_ms"].tolist() == [5, 0]
    assert frame["exposed_ms"].tolist() == [5, 0]


def test_nothing_gives_no_row_and_all_columns() -> None:
    frame = overlap(tables())
    assert len(frame) == 0
    assert list(frame.columns) == ["rank", *_COLUMNS]


def test_a_rank_without_communication_has_no_ratio() -> None:
    frame = overlap(tables(spans=[kernel(0, "compute", 0, 5)]))
    assert frame["compute_ms"].tolist() == [5]
    assert np.isnan(frame["overlap_ratio"][0])


def test_blocked_time_counts_in_each_step_that_it_reaches_into() -> None:
    rows = tables(steps=[step(0, 0, 0, 10), step(0, 1, 10, 20), step(1, 0, 5, 9)], host=[wait(0, 0, 8, 12), wait(0, 1, 12, 13)])
    frame = overlap(rows, ["rank", "step"])
    assert frame["compute_ms"].tolist() == [8, 7, 4]


def test_a_loop_without_optimizer_hides_nothing_behind_its_own_blocked_call() -> None:
    steps = [step(rank, n, 10 * n, 10 * n + 10) for rank in (0, 1) for n in (0, 1, 2)]
    late = [(rank, n, 10 * n + 11, 10 * n + 18) for rank in (0, 1) for n in (0, 1)]  # labelled with the step before
    rows = tables(steps=steps, collectives=[collective(r, 0, a, b, step=n) for r, n, a, b in late], host=[wait(*one) for one in late])
    frame = overlap(rows, "rank")
    assert frame["overlap_ms"].tolist() == [0, 0]
    assert frame["compute_ms"].tolist() == [16, 16]


@pytest.mark.parametrize(("by", "message"), [
    ("ranks", "by='ranks' is unknown; choose from rank, step, process_group, operation, phase"),
    ([], "by=.. names no key"),
    (["rank", "rank"], "one twice"),
])
def test_bad_keys_are_one_line(by: Any, message: str) -> None:
    with pytest.raises(DtscopeError, match=message):
        overlap(tables(), by)


def test_a_bad_convention_is_one_line() -> None:
    with pytest.raises(DtscopeError, match="convention='htaa' is unknown; choose from None, 'hta', 'tensorboard'"):
        overlap(tables(), convention="htaa")


@pytest.mark.parametrize(("device", "exposed"), [("cuda:0", 10.0), ("cpu", 40.0)])
def test_a_device_computes_after_its_host_until_its_own_wait(device: str, exposed: float) -> None:
    """The last bucket of step 0 ends 60 ms into the host's next step, which was not sampled; for 10 ms of that the device waits."""
    steps = [step(0, 0, 0, 100, comm_ms=40.0, exposed_ms=10.0), step(0, 1, 100, 200, exposed_ms=10.0)]
    calls = [collective(0, 0, 120, 160, step=0, bucket=0)]
    sampled = [{"rank": 0, "time_ns": at(50), "device": device}]

    frame = overlap(tables(steps=steps, collectives=calls, host=[wait(0, 0, 150, 160)], devices=sampled), ["rank", "step"])

    assert frame["exposed_ms"].tolist()[0] == exposed
    assert frame["compute_ms"].tolist()[0] == (150.0 if device == "cuda:0" else 100.0)
