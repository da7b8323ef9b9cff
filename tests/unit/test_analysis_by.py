# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Figures under every combination of `by`, against adding up by hand."""

from __future__ import annotations

from itertools import combinations
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from analysis_rows import BASE, tables, two_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter.analysis.bandwidth import bandwidth
from dtscope_jupyter.analysis.breakdown import breakdown
from dtscope_jupyter.analysis.buckets import buckets
from dtscope_jupyter.analysis.copies import copies
from dtscope_jupyter.analysis.kernels import kernels, slowdown
from dtscope_jupyter.analysis.overlap import overlap
from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_KEYS = ("rank", "step", "process_group", "operation", "phase")
_EVERY = [keys for count in range(1, 6) for keys in combinations(_KEYS, count)]
_PARTS = ("compute_ms", "exposed_ms", "copy_ms", "idle_ms")

_SPAN = st.fixed_dictionaries({
    "rank": st.integers(0, 1), "step": st.integers(0, 1), "kind": st.sampled_from(["comm", "compute", "memcpy"]),
    "start": st.integers(0, 60), "length": st.integers(1, 12), "phase": st.sampled_from([None, "forward", "backward"]),
    "operation": st.sampled_from(["all_reduce", "all_gather"]), "process_group": st.sampled_from(["0", "1"]),
})


def _row(made: dict[str, Any]) -> dict[str, Any]:
    start = BASE + 100 * made["step"] + made["start"]
    row = {key: made[key] for key in ("rank", "step", "kind", "phase")} | {"name": f"{made['kind']} {made['length'] % 3}", "stream": 7}
    if made["kind"] == "comm":
        row |= {"operation": made["operation"], "process_group": made["process_group"]}
    return row | {"start_ns": start, "end_ns": start + made["length"], "launch_ns": start - 1}


def _group(rows: Iterable[dict[str, Any]], keys: Iterable[str]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return found


def _plain(value: Any) -> Any:
    return None if pd.isna(value) else value


def _points(rows: Iterable[dict[str, Any]]) -> set[int]:
    return {time for row in rows for time in range(row["start_ns"], row["end_ns"])}


@settings(max_examples=60, deadline=None)
@given(st.lists(_SPAN, min_size=1, max_size=12), st.sampled_from(_EVERY))
def test_kernels(made: list[dict[str, Any]], by: tuple[str, ...]) -> None:
    spans = [_row(one) for one in made]
    expected = _group(spans, [*by, "kind", "name"])
    rows = kernels(tables(spans=spans), by=by).to_dict("records")
    found = {tuple(_plain(row[key]) for key in (*by, "kind", "name")): row for row in rows}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        lengths = [one["end_ns"] - one["start_ns"] for one in expected[key]]
        figures = (row["calls"], row["ranks"], row["total_ms"] * 1e6, row["mean_ms"] * 1e6, row["max_ms"] * 1e6)
        ranks = {one["rank"] for one in expected[key]}
        assert figures == pytest.approx((len(lengths), len(ranks), sum(lengths), mean(lengths), max(lengths)))


@settings(max_examples=60, deadline=None)
@given(st.lists(_SPAN, min_size=1, max_size=12), st.sampled_from([("phase",), ("rank", "phase"), ("rank", "step", "phase"), ("step",)]))
def test_breakdown_adds_up_and_each_gap_is_somebodys(made: list[dict[str, Any]], by: tuple[str, ...]) -> None:
    spans = [_row(one) for one in made]
    frame = breakdown(tables(spans=spans), by, kernel_delay_ns=5)
    assert frame[list(_PARTS)].sum(axis=1).tolist() == pytest.approx(frame["wall_ms"].tolist())
    reasons = frame[["idle_host_ms", "idle_kernel_ms", "idle_other_ms"]].sum(axis=1)
    assert reasons.tolist() == pytest.approx(frame["idle_ms"].tolist(), abs=1e-12)
    lines = _group(spans, [key for key in ("rank", "step") if key in by or key == "rank"])
    gaps = sum(max(points) + 1 - min(points) - len(points) for rows in lines.values() if (points := _points(rows)))
    total = sum(row["idle_ms"] * (1 if "rank" in by else _ranks(spans, by, row)) for row in frame.to_dict("records"))
    assert total * 1e6 == pytest.approx(gaps, abs=1e-6)


def _ranks(spans: list[dict[str, Any]], by: tuple[str, ...], row: Any) -> int:
    return len({span["rank"] for span in spans if all(span[key] == _plain(row[key]) for key in by)})


@pytest.mark.parametrize("by", _EVERY)
def test_of_recorded_ranks(by: tuple[str, ...]) -> None:
    rows = tables(**two_ranks())
    called = _group(two_ranks()["collectives"], by)
    waited = {tuple(_plain(row[key]) for key in by): row for row in waits(rows, by).to_dict("records")}
    assert waited.keys() == called.keys()
    for key, row in waited.items():
        late = sum(5 for one in called[key] if one["rank"] == 0)
        ranks = len({one["rank"] for one in called[key]})
        assert row["wait_ms"] == pytest.approx(late if "rank" in by else late / ranks)
        assert row["times_last"] == sum(one["rank"] == 1 for one in called[key])
    moved = {tuple(_plain(row[key]) for key in by): row for row in bandwidth(rows, by).to_dict("records")}
    assert moved.keys() == called.keys()
    assert overlap(rows, by)["comm_ms"].sum() > 0
    order = buckets(rows, by)
    assert {tuple(_plain(row[key]) for key in by) for row in order.to_dict("records")} == called.keys()
    assert set(zip(order["bucket"], order["order"], strict=True)) == {(0, 0.0), (1, 1.0)}


@pytest.mark.parametrize("by", _EVERY)
def test_copies(by: tuple[str, ...]) -> None:
    strided = {"operation": "all_reduce", "contiguous": False, "bytes": 8}
    made = [
        {"rank": rank, "step": step, "seq": seq, "process_group": group, "phase": phase, **strided}
        for rank in range(2) for step in range(2) for seq, (group, phase) in enumerate([("0", "forward"), ("1", "backward")])
    ]
    found = {tuple(_plain(row[key]) for key in by): row["count"] for row in copies(tables(collectives=made), by).to_dict("records")}
    assert found == {key: len(rows) for key, rows in _group(made, by).items()}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.integers(40, 60)), min_size=1, max_size=40), st.booleans())
def test_slowdown(calls: list[tuple[int, bool, int]], grouped: bool) -> None:  # noqa: FBT001
    """Calls beside all_reduce of group 0 or alone; all_gather of group 1 runs elsewhere."""
    spans = []
    for i, (rank, talking, length) in enumerate(calls):
        start = BASE + 1000 * i
        spans.append({"rank": rank, "kind": "compute", "name": "gemm", "stream": 7, "start_ns": start, "end_ns": start + length})
        shift = 0 if talking else 500
        more = {"operation": "all_reduce" if talking else "all_gather", "process_group": "0" if talking else "1"}
        times = {"start_ns": start + shift, "end_ns": start + shift + 60}
        spans.append({"rank": rank, "kind": "comm", "name": "n", "stream": 9, **times, **more})
    by = ["rank", "operation"] if grouped else ["rank"]
    found = {row["rank"]: row for row in slowdown(tables(spans=spans), by=by).to_dict("records")}
    for rank in range(2):
        beside = [length for r, talking, length in calls if r == rank and talking]
        alone = [length for r, talking, length in calls if r == rank and not talking]
        steady = len(alone) > 2 and np.quantile(alone, 0.9) - np.quantile(alone, 0.1) <= 0.25 * median(alone)
        assert (rank in found) == (steady and len(beside) > 2)
        if rank in found:
            assert found[rank]["slowdown"] == pytest.approx(median(beside) / median(alone))
            assert found[rank].get("operation", "all_reduce") == "all_reduce"


@pytest.mark.parametrize("figure", [kernels, slowdown, copies, buckets])
def test_an_unknown_key_is_one_line(figure: Callable[..., pd.DataFrame]) -> None:
    with pytest.raises(DtscopeError, match="by='color' is unknown; choose from rank, step, process_group, operation, phase"):
        figure(tables(), by="color")


@pytest.mark.parametrize("figure", [kernels, slowdown, copies, buckets])
@pytest.mark.parametrize("by", _EVERY)
def test_of_nothing_there_is_no_row_but_every_key(figure: Callable[..., pd.DataFrame], by: tuple[str, ...]) -> None:
    frame = figure(tables(), by=by)
    assert len(frame) == 0
    assert list(frame.columns[: len(by)]) == list(by)
