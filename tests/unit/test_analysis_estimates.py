# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps in which a rank only counted its collectives: their exposed time stands, nothing else of them is taken for 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analysis_rows import BASE, counted, kernel, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter.analysis.breakdown import breakdown
from dtscope_jupyter.analysis.compare import compare
from dtscope_jupyter.analysis.overlap import overlap

_LENGTHS = ["comm_ms", "compute_ms", "overlap_ms", "exposed_ms"]


def test_every_step_has_its_exposed_time_and_its_grade() -> None:
    frame = overlap(tables(**counted()), ["rank", "step"])
    assert frame["source"].tolist() == ["estimate", "estimate", "estimate", "event"] * 2
    assert frame["exposed_ms"].tolist() == [1, 2, 3, 8, 11, 12, 13, 8]
    unknown = frame[frame["source"] == "estimate"]
    assert unknown[["comm_ms", "compute_ms", "overlap_ms", "overlap_ratio"]].isna().all(axis=None)
    assert frame.attrs == {"estimated_steps": 0}


def test_a_row_of_several_steps_is_of_the_timed_ones() -> None:
    frame = overlap(tables(**counted()), "rank")
    assert frame[_LENGTHS].to_numpy().tolist() == [[36, 82, 28, 8], [26, 82, 18, 8]]
    assert frame["source"].tolist() == ["event", "event"]
    assert frame.attrs == {"estimated_steps": 6}


def test_over_ranks_estimates_are_averaged() -> None:
    frame = overlap(tables(**counted()), "step")
    assert frame["exposed_ms"].tolist() == [6, 7, 8, 8]
    assert frame["comm_ms"].isna().tolist() == [True, True, True, False]


def test_where_nothing_was_timed_the_estimates_add_up() -> None:
    frame = overlap(tables(**counted(3)), "rank")
    assert frame["exposed_ms"].tolist() == [6, 36]
    assert frame["source"].tolist() == ["estimate", "estimate"]
    assert frame[["comm_ms", "overlap_ratio"]].isna().all(axis=None)


def test_a_profiled_step_needs_no_estimate() -> None:
    rows = tables(**counted(), spans=[kernel(0, "comm", 110, 120, step=1), kernel(0, "compute", 115, 130, step=1)])
    frame = overlap(rows, ["rank", "step"])[["step", *_LENGTHS, "source"]]
    assert frame.to_numpy().tolist()[1] == [1, 10, 15, 5, 5, "profiler"]
    assert frame["source"].tolist()[:4] == ["estimate", "profiler", "estimate", "event"]
    assert overlap(rows, "rank")["comm_ms"].tolist() == [46, 26]


def test_breakdown_takes_wall_and_parts_of_the_same_steps() -> None:
    frame = breakdown(tables(**counted()), "rank")
    assert frame["wall_ms"].tolist() == [90, 90]
    assert frame["idle_ms"].tolist() == [0, 0]
    by_step = breakdown(tables(**counted()), ["rank", "step"])
    unknown = by_step[by_step["source"] == "estimate"]
    assert unknown["wall_ms"].tolist() == [90] * 6
    assert unknown[["compute_ms", "copy_ms", "idle_ms"]].isna().all(axis=None)
    assert unknown["exposed_ms"].tolist() == [1, 2, 3, 11, 12, 13]


def test_comparing_takes_no_unknown_for_nothing() -> None:
    found = {name: (a, b) for name, _, a, b, _ in compare(tables(**counted()), tables(**counted(8)))}
    assert found["comm"] == (31, 31)
    assert found["overlap ratio"] == pytest.approx((23 / 31, 23 / 31))


_STEP = st.fixed_dictionaries({
    "rank": st.integers(0, 2), "step": st.integers(0, 5), "kind": st.sampled_from(["timed", "counted", "unknown"]),
    "exposed": st.integers(0, 40), "comm": st.integers(1, 40), "compute": st.integers(0, 40),
})


_STEPS = st.lists(_STEP, max_size=14, unique_by=lambda row: (row["rank"], row["step"]))


@settings(max_examples=100, deadline=None)
@given(_STEPS, st.sampled_from([("rank",), ("step",), ("rank", "step")]))
def test_against_adding_up_by_hand(made: list[dict[str, Any]], by: tuple[str, ...]) -> None:
    steps: list[dict[str, Any]] = []
    for one in made:
        row = {"rank": one["rank"], "step": one["step"], "start_ns": BASE + one["step"], "end_ns": BASE + one["step"], "source": "event"}
        exposed = min(one["exposed"], one["comm"])
        if one["kind"] == "timed":
            row |= {"comm_ms": one["comm"], "compute_ms": one["compute"], "overlap_ms": one["comm"] - exposed, "exposed_ms": exposed}
        elif one["kind"] == "counted":
            row |= {"exposed_ms": exposed}
        steps.append(row)
    frame = overlap(tables(steps=steps), list(by))
    for shown in frame.to_dict("records"):
        row = {str(name): value for name, value in shown.items()}
        mine = [one for one in steps if all(one[key] == row[key] for key in by) and "exposed_ms" in one]
        best = [one for one in mine if "comm_ms" in one] or mine
        ranks = 1 if "rank" in by else len({one["rank"] for one in best})
        assert row["exposed_ms"] == pytest.approx(sum(one["exposed_ms"] for one in best) / ranks)
        comm = sum(one.get("comm_ms", np.nan) for one in best) / ranks
        assert row["comm_ms"] == pytest.approx(comm, nan_ok=True)
        assert (row["source"] == "estimate") == bool(np.isnan(comm))
    assert {tuple(row) for row in frame[list(by)].to_numpy().tolist()} >= {
        tuple(one[key] for key in by) for one in steps if "exposed_ms" in one
    }
    assert not frame.duplicated(list(by)).any()
