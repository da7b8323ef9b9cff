# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Breakdown against counting every nanosecond; kernels, slowdown, copies and buckets on rows with known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analysis_rows import BASE, at, collective, kernel, step, tables, two_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter.analysis.breakdown import breakdown
from dtscope_jupyter.analysis.buckets import buckets
from dtscope_jupyter.analysis.compare import compare
from dtscope_jupyter.analysis.copies import copies
from dtscope_jupyter.analysis.kernels import kernels, slowdown
from dtscope_jupyter.comparison import Comparison
from dtscope_jupyter.errors import DtscopeError

_SPAN = st.fixed_dictionaries({
    "rank": st.integers(0, 1),
    "kind": st.sampled_from(["comm", "compute", "memcpy", "memset"]),
    "start": st.integers(0, 80),
    "length": st.integers(1, 12),
    "launched": st.one_of(st.none(), st.integers(-10, 60)),
})


def _row(made: dict[str, Any]) -> dict[str, Any]:
    start = BASE + made["start"]
    launch = None if made["launched"] is None else start - made["launched"]
    times = {"start_ns": start, "end_ns": start + made["length"], "launch_ns": launch}
    return {"rank": made["rank"], "kind": made["kind"], "name": made["kind"], "stream": 7, "step": 0, **times}


def _points(rows: list[dict[str, Any]], *kinds: str) -> set[int]:
    return {time for row in rows if row["kind"] in kinds for time in range(row["start_ns"], row["end_ns"])}


def _idle(rows: list[dict[str, Any]], delay: int) -> tuple[list[int], int]:
    """Idle time by reason, and in all, from the gaps between what runs."""
    busy = _points(rows, "comm", "compute", "memcpy", "memset")
    reasons = [0, 0, 0]
    starts = sorted(time for time in busy if time - 1 not in busy)[1:]
    ends = sorted(time + 1 for time in busy if time + 1 not in busy)[:-1]
    for end, start in zip(ends, starts, strict=True):
        follower = next(row for row in rows if row["start_ns"] == start)
        if follower["launch_ns"] is not None and follower["launch_ns"] > end:
            reasons[0] += start - end
        else:
            reasons[1 if start - end < delay else 2] += start - end
    return reasons, max(busy) + 1 - min(busy) - len(busy)


@settings(deadline=None, max_examples=80)
@given(st.lists(_SPAN, min_size=1, max_size=14))
def test_breakdown_against_counting_every_nanosecond(made: list[dict[str, Any]]) -> None:
    rows = [_row(one) for one in made]
    frame = breakdown(tables(spans=rows), kernel_delay_ns=5)
    for row in frame.to_dict("records"):
        mine = [one for one in rows if one["rank"] == row["rank"]]
        compute, comm = _points(mine, "compute"), _points(mine, "comm")
        copies_ = _points(mine, "memcpy", "memset") - compute - comm
        reasons, idle = _idle(mine, 5)
        expected = {
            "compute_ms": len(compute), "comm_ms": len(comm), "overlap_ms": len(compute & comm), "exposed_ms": len(comm - compute),
            "copy_ms": len(copies_), "idle_ms": idle, "idle_host_ms": reasons[0], "idle_kernel_ms": reasons[1], "idle_other_ms": reasons[2],
            "wall_ms": len(compute | comm) + len(copies_) + idle,
        }
        if compute or comm:
            found = {name: row[name] * 1e6 for name in expected}
            assert found == pytest.approx(expected, abs=1e-6)


def test_breakdown_of_recorded_steps() -> None:
    frame = breakdown(tables(**two_ranks()), ["rank", "step"])
    assert frame["wall_ms"].tolist() == [90] * 6
    assert frame["compute_ms"].tolist() == [82] * 6
    assert frame["exposed_ms"].tolist() == [8] * 6
    assert frame["idle_ms"].tolist() == [0] * 6
    assert frame["idle_host_ms"].isna().all()
    with pytest.raises(DtscopeError, match="idle time belongs to no operation: breakdown knows by rank, step, phase"):
        breakdown(tables(), ["rank", "operation"])
    with pytest.raises(DtscopeError, match="by='bucket' is unknown; choose from rank, step, phase"):
        breakdown(tables(), "bucket")


def test_a_compute_kernel_beside_communication_against_alone() -> None:
    spans = [kernel(0, "comm", 0, 100, name="nccl")]
    spans += [kernel(0, "compute", 10 * n, 10 * n + 6, name="gemm") for n in range(4)]
    spans += [kernel(0, "compute", 200 + 10 * n, 204 + 10 * n, name="gemm") for n in range(5)]
    spans += [kernel(0, "compute", 300 + 10 * n, 301 + 3 * n + 10 * n, name="varied") for n in range(3)]
    spans += [kernel(0, "compute", 40 + 10 * n, 46 + 10 * n, name="varied") for n in range(3)]
    frame = slowdown(tables(spans=spans))
    assert frame["name"].tolist() == ["gemm"], "of a kernel whose calls alone differ among themselves nothing is said"
    row = frame.iloc[0]
    assert (row["calls_beside"], row["calls_alone"], row["beside_ms"], row["alone_ms"]) == (4, 5, 6, 4)
    assert (row["slowdown"], row["lost_ms"]) == (1.5, 8)


def test_kernels_by_time() -> None:
    spans = [kernel(rank, "compute", 10 * n, 10 * n + 2 + rank, name="gemm") for rank in range(2) for n in range(3)]
    spans.append(kernel(0, "compute", 50, 50.5, name="add"))
    frame = kernels(tables(spans=spans), largest=1)
    assert frame.to_dict("records") == [
        {"kind": "compute", "name": "gemm", "ranks": 2, "calls": 6, "total_ms": 15, "mean_ms": 2.5, "max_ms": 3, "share": 15 / 15.5},
    ]


def test_implicit_copies_by_cause() -> None:
    spans = [
        kernel(0, "memcpy", 0, 2, copy="HtoD pageable", bytes=100, step=0),
        kernel(0, "memcpy", 5, 6, copy="HtoD pageable", bytes=50, step=1),
        kernel(0, "memcpy", 7, 8, copy="HtoD pinned", bytes=10),
        kernel(0, "cpu_op", 1, 2, stream=None, thread=1) | {"name": "torch.distributed.ddp.reducer::copy_bucket_to_grad"},
    ]
    rows = [collective(1, 0, 0, 1, contiguous=False, bytes=64, line="train.py:7"), collective(1, 1, 0, 1, contiguous=True, bytes=64)]
    host = [{"rank": 1, "step": 0, "kind": "copy", "detail": "aten::_to_copy", "start_ns": at(0), "end_ns": at(3), "bytes": 8}]
    frame = copies(tables(spans=spans, collectives=rows, host=host))
    assert frame[["rank", "cause", "what", "count", "bytes", "total_ms", "steps"]].to_numpy().tolist() == [
        [0, "bucket_copy", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 1, 0, 1, 0],
        [0, "pageable_host_memory", "HtoD pageable", 2, 150, 3, 2],
        [1, "non_contiguous", "all_reduce", 1, 64, 0, 0],
        [1, "other", "aten::_to_copy", 1, 8, 3, 1],
    ]
    assert frame["line"].tolist()[2] == "train.py:7"
    assert len(copies(tables())) == 0


def test_buckets_in_their_order() -> None:
    rows = two_ranks(2)
    gradients = [
        {"rank": rank, "step": n, "parameter_id": p, "ready_ns": at(100 * n + 50 + p)}
        for rank in range(2) for n in range(2) for p in range(3)
    ]
    frame = buckets(tables(**rows, gradients=gradients))
    assert frame["bucket"].tolist() == [0, 1, 0, 1]
    assert frame["order"].tolist() == [0, 1, 0, 1]
    assert frame["start_ms"].tolist() == [40, 60, 45, 65]
    assert frame["duration_ms"].tolist() == [18, 18, 13, 13]
    assert frame["after_gradients_ms"].tolist() == [6, 26, 6, 26]
    assert frame["steps"].tolist() == [2] * 4
    assert np.isnan(buckets(tables(**rows))["after_gradients_ms"]).all()


def test_comparing_a_run_with_itself_shows_no_change() -> None:
    rows = tables(**two_ranks(4))
    found = Comparison(("a", "a"), tuple(compare(rows, rows)))
    frame = found.table()
    assert list(frame.columns) == ["figure", "unit", "a (a)", "a (b)", "change", "percent", "clear"]
    assert (frame["change"] == 0).all()
    assert not frame["clear"].fillna(value=False).any()
    assert str(found).splitlines()[0] == "a (a) -> a (b)"
    assert repr(found) == str(found)


def test_a_step_without_an_end_is_no_error() -> None:
    rows = two_ranks(1)
    rows["steps"].append({"rank": 0, "step": 1, "start_ns": at(100), "end_ns": None, "source": "event"})
    assert len(breakdown(tables(**rows))) == 2
    assert step(0, 1, 0, 1)["end_ns"] == at(1)
