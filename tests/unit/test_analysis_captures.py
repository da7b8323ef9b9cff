# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of real traces against exact answers, and against other tools' under their conventions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from dtscope_jupyter import run as runs

_H200 = ["ddp_healthy", "ddp_straggler", "ddp_slow_loader", "ddp_no_p2p", "fsdp_healthy", "ddp_small_buckets", "ddp_one_bucket"]
_ALL = [("h200", name) for name in _H200] + [("hta", name) for name in ("sampled_pair", "nccl_data", "trace_diff_test")]
_FIGURES = ("comm_ms", "compute_ms", "overlap_ms", "exposed_ms", "overlap_ratio")


@cache
def _run(folder: Path) -> runs.Run:
    return runs.open(folder)


def _exactly(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("origin", "name"), _ALL)
def test_exact_answers(captures: Path, origin: str, name: str) -> None:
    answer = json.loads((captures / origin / "expected.json").read_text())[name]
    run = _run(captures / origin / name)
    overlap = run.overlap().set_index("rank")
    assert overlap.index.tolist() == sorted(int(rank) for rank in answer["ranks"])
    for rank, expected in answer["ranks"].items():
        assert overlap.loc[int(rank), list(_FIGURES)].to_dict() == {figure: _exactly(expected[figure]) for figure in _FIGURES}
    waits = run.waits().set_index("rank")
    for rank, wait in answer.get("wait_ms", {}).items():
        assert waits.loc[int(rank), "wait_ms"] == _exactly(wait)
        assert waits.loc[int(rank), "transfer_ms"] == _exactly(answer["transfer_ms"])


@pytest.mark.parametrize(("origin", "name"), _ALL)
def test_holistic_trace_analysis_under_its_convention(captures: Path, origin: str, name: str) -> None:
    answer = json.loads((captures / "hta_answers.json").read_text())[name]
    run = _run(captures / origin / name)
    overlap = run.overlap(convention="hta").set_index("rank")["overlap_ratio"]
    assert {str(rank): round(100 * ratio, 2) for rank, ratio in overlap.items()} == answer["overlap_pct"]
    temporal = run.breakdown(convention="hta").set_index("rank")
    for rank, expected in answer["temporal"].items():
        row = temporal.loc[int(rank)]
        for kind in ("idle", "compute", "non_compute", "kernel"):
            assert row[f"{kind}_ms"] * 1000 == pytest.approx(expected[f"{kind}_time(us)"], abs=1e-6)
        for kind in ("idle", "compute", "non_compute"):
            assert row[f"{kind}_pctg"] == expected[f"{kind}_time_pctg"]


@pytest.mark.parametrize("name", _H200)
def test_clocks_of_one_host_are_left_alone(captures: Path, name: str) -> None:
    clocks = _run(captures / "h200" / name).clocks()
    assert not clocks["applied"].any()
    assert clocks["offset_ms"].tolist() == [0.0] * 4


@pytest.mark.parametrize("name", ["ddp_healthy", "ddp_no_p2p"])
def test_the_tensorboard_split_adds_up_to_the_steps(captures: Path, name: str) -> None:
    run = _run(captures / "h200" / name)
    by_step = run.overlap(["rank", "step"], convention="tensorboard")
    ours = run.overlap(["rank", "step"])
    assert (by_step["comm_ms"] > ours["comm_ms"]).all(), "the host's calls count as well"
    assert (by_step["compute_ms"] + by_step["overlap_ms"]).tolist() == pytest.approx(ours["compute_ms"].tolist())
    whole = by_step[["compute_ms", "overlap_ms", "exposed_ms", "other_ms"]].sum(axis=1)
    steps = run.table("steps")
    measured = (steps["end_ns"] - steps["start_ns"]).groupby(steps["rank"]).sum() / 1e6
    assert whole.groupby(by_step["rank"]).sum().tolist() == pytest.approx(measured.tolist(), rel=0.1)
    means = run.overlap(convention="tensorboard")
    assert means["comm_ms"].tolist() == pytest.approx(by_step.groupby("rank")["comm_ms"].mean().tolist())


_OLD_VIEW = [*(("h200", name) for name in ("ddp_healthy", "ddp_straggler", "ddp_one_bucket")), ("hta", "nccl_data")]


@pytest.mark.parametrize(("origin", "name"), _OLD_VIEW)
def test_the_tensorboard_plugin_under_its_convention(captures: Path, origin: str, name: str) -> None:
    """Its own answers, within what its float microseconds lose."""
    answer = json.loads((Path(__file__).parent.parent / "data" / "tensorboard_answers.json").read_text())[name]
    run = _run(captures / origin / name)
    split = run.overlap(["rank", "step"], convention="tensorboard")
    columns = ["compute_ms", "overlap_ms", "exposed_ms", "other_ms"]
    assert len(split) == sum(len(each) for each in answer["overlap"].values())
    for rank, step, *lengths in split[["rank", "step", *columns]].to_numpy().tolist():
        of_ranks = answer["overlap"][str(int(step))]
        expected = of_ranks.get(f"rank{int(rank)}") or of_ranks[name]
        assert [1000 * length for length in lengths] == pytest.approx(expected, abs=0.1)
    waits = run.waits(["rank", "step"], convention="tensorboard")
    for rank, step, wait, transfer in waits.to_numpy().tolist() if "waits" in answer else []:
        expected = answer["waits"][str(int(step))][f"rank{int(rank)}"]
        assert [1000 * transfer, 1000 * wait] == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("name", ["ddp_healthy", "ddp_straggler", "fsdp_healthy"])
def test_steps_add_up_to_the_rank(captures: Path, name: str) -> None:
    run = _run(captures / "h200" / name)
    whole, parts = run.overlap().set_index("rank"), run.overlap(["rank", "step"]).groupby("rank")
    for figure in ("comm_ms", "exposed_ms"):
        assert parts[figure].sum().tolist() == pytest.approx(whole[figure].tolist(), rel=1e-6)
    assert parts["compute_ms"].sum().tolist() == pytest.approx(whole["compute_ms"].tolist(), rel=0.01)


def test_the_breakdown_adds_up_and_the_sleeping_host_is_blamed(captures: Path) -> None:
    frame = _run(captures / "h200" / "ddp_slow_loader").breakdown().set_index("rank")
    parts = frame[["compute_ms", "exposed_ms", "copy_ms", "idle_ms"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(frame["wall_ms"].tolist())
    reasons = frame[["idle_host_ms", "idle_kernel_ms", "idle_other_ms"]].sum(axis=1)
    assert reasons.tolist() == pytest.approx(frame["idle_ms"].tolist())
    waited = frame["idle_host_ms"].to_dict()
    assert waited[1] > 100
    assert max(waited[0], waited[2], waited[3]) < 20


def test_bandwidth_without_p2p_is_an_eleventh(captures: Path) -> None:
    names = ("ddp_healthy", "ddp_no_p2p")
    healthy, slow = (_run(captures / "h200" / name).bandwidth().set_index("operation").loc["all_reduce"] for name in names)
    assert healthy["bus_gb_s"] / healthy["algorithm_gb_s"] == pytest.approx(1.5)
    assert healthy["bus_gb_s"] / slow["bus_gb_s"] == pytest.approx(11, abs=1)
    assert 100 < healthy["bus_gb_s"] < 450, "NVLink of an H200 carries 450 GB/s each way"


def test_who_was_last_is_the_straggler(captures: Path) -> None:
    run = _run(captures / "h200" / "ddp_straggler")
    waits = run.waits().set_index("rank")
    assert waits["times_last"].idxmax() == 2
    assert waits["wait_ms"].idxmin() == 2
    each = run.waits("collective")
    assert len(each) == waits["collectives"].max() == waits["times_last"].sum()
    assert each["transfer_ms"].sum() == pytest.approx(waits["transfer_ms"][0])
    assert (each["wait_ms"] >= each["mean_wait_ms"]).all()


def test_what_the_straggler_changed(captures: Path) -> None:
    healthy, slow = (_run(captures / "h200" / name) for name in ("ddp_healthy", "ddp_straggler"))
    comparison = healthy.compare(slow)
    table = comparison.table().set_index("figure")
    assert table["change"].to_dict()["step"] == pytest.approx(27, abs=3)
    assert table["percent"].to_dict()["wait"] > 500
    assert (table["clear"].to_dict()["step"], table["clear"].to_dict()["transfer"]) == (True, False)
    assert "ddp_healthy -> ddp_straggler" in str(comparison)
    bars = comparison.figure().data[0]
    assert dict(zip(bars.y, bars.customdata, strict=True)) == table["percent"].dropna().to_dict()


def test_largest_kernels_and_their_shares(captures: Path) -> None:
    run = _run(captures / "h200" / "ddp_healthy")
    frame = run.kernels(largest=10_000)
    assert frame.groupby("kind")["share"].sum().tolist() == pytest.approx([1.0] * frame["kind"].nunique())
    spans = run.table("spans")
    device = spans[spans["kind"].isin(["comm", "compute", "memcpy", "memset"])]
    assert frame["calls"].sum() == len(device)
    assert frame["total_ms"].sum() == pytest.approx((device["end_ns"] - device["start_ns"]).sum() / 1e6)
    assert frame["total_ms"].is_monotonic_decreasing
