# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The small parts of the agent: orders, sizes, thinning, evidence, readings, the device's clock, the back-off."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent import lines, readings, tiles
from dtscope_jupyter.agent.config import Config
from dtscope_jupyter.agent.cost import ALWAYS_NS, Cost
from dtscope_jupyter.agent.device_clock import DeviceClock
from dtscope_jupyter.agent.evidence import Evidence
from dtscope_jupyter.agent.recorder import Recorder
from dtscope_jupyter.agent.sizes import share, size
from dtscope_jupyter.agent.thinning import Thinning
from dtscope_jupyter.errors import DtscopeError


def test_orders_go_through_json() -> None:
    config = Config(Path("/x/rank-0001"), 1, 4, 1, frozenset({"steps"}), 0.02, 10**6, ({"fault": "nan", "rank": 1},), record=False)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    "wrong", [{"rank": 4}, {"rank": -1}, {"budget": 0}, {"budget": 2}, {"disk": 0}, {"collect": frozenset({"step"})}]
)
def test_orders_that_cannot_be_met(wrong: dict[str, Any]) -> None:
    with pytest.raises(DtscopeError):
        Config(**{"folder": Path(), "rank": 0, "world_size": 4, **wrong})


def test_orders_with_unknown_fields() -> None:
    with pytest.raises(DtscopeError, match="can't arm"):
        Config.from_json({"folder": "/x", "rank": 0, "world_size": 1, "colour": "red"})


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.02", 0.02), (" 100% ", 1.0)])
def test_share(text: str, value: float) -> None:
    assert share(text) == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("2GiB", 2 * 2**30), ("1.5 MB", 1_500_000), ("4096", 4096), ("64kib", 65536)])
def test_size(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "much", "2XB", "-1", "1%%"])
def test_unreadable(text: str) -> None:
    with pytest.raises(DtscopeError):
        size(text)
    with pytest.raises(DtscopeError):
        share(text if text != "-1" else "one")


@given(st.floats(0, 1.2), st.sampled_from(["steps", "collectives", "gradients", "notes", "spans"]))
def test_thinning_counts_what_it_leaves_out(used: float, table: str) -> None:
    thinning = Thinning(1000)
    thinning.used = int(used * 1000)
    rows = [(step,) for step in range(256)]
    kept = thinning.keep(table, rows)
    assert len(kept) + thinning.counts[table] == 256
    assert set(kept) <= set(rows)


def test_thinning_takes_the_finest_first() -> None:
    thinning = Thinning(1000)
    thinning.used = 800
    rows = [(step,) for step in range(64)]
    kept = {table: len(thinning.keep(table, rows)) for table in ("steps", "collectives", "gradients")}
    assert kept["steps"] == 64 > kept["collectives"] > kept["gradients"] > 0


def test_evidence_tells_reset_and_update_apart() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    evidence = Evidence()
    evidence.watch([parameter])

    def backward() -> None:
        (parameter * 2).sum().backward()
        evidence.remember()

    backward()
    assert evidence.since_last() == (False, False)
    with torch.no_grad():
        parameter.sub_(0.1)
    assert evidence.since_last() == (False, True)
    backward()
    assert parameter.grad is not None
    parameter.grad.zero_()
    assert evidence.since_last() == (True, False)
    parameter.grad = None
    assert evidence.since_last() == (True, False)


def test_norms_and_counts() -> None:
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([float("nan"), float("inf"), 1.0])]
    assert readings.Reading(readings.norms(tensors)).values()[0] == 5.0
    assert readings.Reading(readings.nonfinite(tensors)).values() == [0.0, 2.0]


class _Event:
    """Stands for a CUDA event, which there is none of here: reached at a time of the device's clock."""

    def __init__(self, device_ns: float) -> None:
        self.at = device_ns

    def elapsed_time(self, other: _Event) -> float:
        return float(torch.tensor((other.at - self.at) / 1e6, dtype=torch.float32))


@given(st.lists(st.floats(0, 5e6), min_size=3, max_size=50))
def test_device_clock_is_off_by_the_drift_since_the_least_delay(delays: list[float]) -> None:
    clock = DeviceClock()
    shift, host = 7e12, 10**12
    for delay in [0.0, *delays]:
        event = _Event(host + delay + shift)
        clock.learn(event, host)
        assert clock.time(event) == pytest.approx(host + delay, abs=5000 + 20e-6 * (host - 10**12))
        host += 400_000_000


def _cost(tmp_path: Path, budget: float) -> Cost:
    return Cost(Recorder(tmp_path, 0, 10**6), budget)


def test_a_cheap_probe_runs_with_every_step(tmp_path: Path) -> None:
    cost = _cost(tmp_path, 0.01)
    due = []
    for _ in range(30):
        due.append(cost.due("flat_norm"))
        cost.spent("flat_norm", ALWAYS_NS // 2)
        cost.step_closed()
    assert all(due)


def test_a_dear_probe_backs_off(tmp_path: Path) -> None:
    cost = _cost(tmp_path, 0.01)
    runs = 0
    for _ in range(64):
        if cost.due("flat_norm"):
            runs += 1
            cost.spent("flat_norm", 10**9)
        cost.step_closed()
    assert 16 <= runs < 24
    assert cost.ratio > 0


def test_the_comparison_alternates_and_is_noted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 10**6)
    cost = Cost(recorder, 1.0)
    due = []
    for _ in range(70):
        due.append(cost.due("local_norm"))
        cost.spent("local_norm", 1000)
        cost.step_closed()
    assert due[32:64] == [True, False] * 16
    assert any(row[3] == "ab_ratio" and math.isfinite(row[4]) for row in recorder._rows["notes"])


def test_the_line_is_the_programs() -> None:
    line, sharded = _through_us()
    assert line is not None
    assert line.startswith(__file__)
    assert not sharded


def _through_us() -> tuple[str | None, bool]:
    def inner() -> tuple[str | None, bool]:
        return lines.caller()

    return inner()


def test_tiles_keep_the_largest_of_each_cell() -> None:
    gradient = torch.zeros(200, 130)
    gradient[199, 129], gradient[0, 0] = -5.0, float("nan")
    cells = tiles.pooled(gradient)
    assert cells.shape == (64, 64)
    assert cells[-1, -1] == 5.0
    assert cells[0, 0].isnan()
    assert tiles.pooled(torch.ones(3)).shape == (3, 1)
    assert tiles.pooled(torch.tensor(2.0)).tolist() == [[2.0]]


def test_histogram_counts_every_element_once() -> None:
    counts = tiles.histogram(torch.tensor([0.0, 1e-20, 1e-12, 0.5, -5.0, 5000.0, 2e4, float("inf"), float("nan")]))
    assert counts.tolist() == [2, 1, *[0] * 10, 1, 1, 0, 0, 1, 3]

