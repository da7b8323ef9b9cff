# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What is looked at closely on a device, how often, and what is told of the other steps."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent import flight_recorder
from dtscope_jupyter.agent.cost import Cost, extra, sampled_cost
from dtscope_jupyter.agent.counted import Backward, Call, Counted
from dtscope_jupyter.agent.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path


def _cost(tmp_path: Path, budget: float) -> Cost:
    return Cost(Recorder(tmp_path, 0, 10**6), budget)


def test_on_a_device_all_probes_share_rare_steps(tmp_path: Path) -> None:
    cost = _cost(tmp_path, 0.01)
    cost.begin_on_device()
    due = []
    for _ in range(1024):
        due.append({name for name in ("local_norm", "synced_norm", "events", "tiles") if cost.due(name)})
        if cost.sampled:
            cost.spent("events", 10**9)
        cost.step_closed()
    closely = [step for step, names in enumerate(due) if names]
    assert all(len(names) in (0, 4) for names in due)
    assert closely[:3] == [0, 16, 32]
    assert closely[-3:] == [256, 512, 768]


def test_a_start_that_leaves_no_room_makes_sampling_rarer_by_little(tmp_path: Path) -> None:
    """The first plan sees what starting up costs; one in 256 would be one in 256 for long."""
    cost = _cost(tmp_path, 0.0)
    cost.begin_on_device()
    sampled = []
    for step in range(300):
        if cost.sampled:
            sampled.append(step)
            cost.spent("events", 10**9)
        cost.step_closed()
    assert sampled == [0, 16, 32, 64, 256]


def test_on_a_cpu_without_room_one_step_in_16_is_looked_at_later_one_in_32(tmp_path: Path) -> None:
    """All are before the first plan, and for the comparisons, which begin with steps 32 and 256."""
    cost = _cost(tmp_path, 0.0)
    sampled, stamped = [], []
    for step in range(450):
        if cost.sampled:
            sampled.append(step)
            cost.spent("events", 10**9)
        if cost.stamps:
            stamped.append(step)
        cost.step_closed()
    assert sampled == [*range(17), *range(32, 65), *range(80, 256, 16), *range(256, 289), *range(320, 450, 32)]
    assert stamped == sampled


def test_what_nobody_measured_yet_stays_rare(tmp_path: Path) -> None:
    cost = _cost(tmp_path, 0.01)
    cost.step_closed()
    cost.begin_on_device()
    for _ in range(17):
        cost.step_closed()
    assert [cost.due("flat_norm"), cost.sampled] == [False, False]


@given(st.integers(1, 8), st.integers(0, 10**7), st.integers(1, 10**8))
def test_a_sampled_step_costs_what_it_and_the_next_take_longer(late: int, cost: int, step: int) -> None:
    pattern = [(False, step)] * 6 + [(True, step + cost // late), (False, step + cost - cost // late)]
    assert extra(pattern) == cost
    assert extra(pattern[1:] + pattern[:1]) is None
    assert extra(pattern[3:]) is None, "too few to compare with"
    assert sampled_cost([float(cost)] * 4) == pytest.approx(cost)


def test_a_cost_that_is_lost_in_the_spread_is_none() -> None:
    assert sampled_cost([-9.0, 4.0, 7.0, -3.0]) == 0
    assert sampled_cost([9.0, 9.0, 9.0]) == 0, "too few"


def test_counted_calls_are_told_only_of_a_stuck_step() -> None:
    group: Any = SimpleNamespace(name="g", size=2)
    counted = Counted()
    for seq, bucket in ((7, 0), (8, 1)):
        counted.add(Call(3, "all_reduce", group, 64, torch.float32, torch.Size([16]), bucket, "backward", seq, 1000 * seq))
    assert counted.overdue(8500, 1000) == []
    told = counted.overdue(10_000, 1000)
    assert [(operation.seq, operation.row(3)[13]) for operation in told] == [(8, "scheduled")]
    assert counted.overdue(20_000, 1000) == []
    assert counted.close(3, waited=True) == told
    assert counted.closed == {3: True}
    counted.add(Call(4, "all_gather", group, 64, None, None, None, None, 9, 9000))
    counted.close(4, waited=True)
    assert counted.closed == {3: True, 4: False}


def test_buckets_that_nobody_saw_are_told_by_the_groups_number() -> None:
    group: Any = SimpleNamespace(name="g", size=2)
    issued = [10]
    kinds: list[Any] = [(64, torch.float32, (16,)), (32, torch.float32, (8,)), (8, torch.float32, (2,))]
    counted = Counted()
    counted.backwards.append(Backward(5, group, kinds, lambda: issued[0], 10, 1000))
    assert counted.overdue(1500, 1000) == [], "none was issued"
    issued[0] = 12
    counted.add(Call(5, "all_gather", group, 4, None, None, None, None, 11, 1600))
    assert counted.overdue(2000, 1000) == [], "the last one is young"
    issued[0] = 13
    assert counted.overdue(2500, 1000) == [], "another one came"
    assert [(operation.seq, operation.bucket, operation.bytes) for operation in counted.overdue(3600, 1000)] == [(13, 1, 32)]
    counted.close(5, waited=False)
    counted.backwards.append(Backward(6, group, kinds, lambda: issued[0], 13, 5000))
    counted.close(6, waited=True)
    assert counted.closed == {5: False, 6: True}


def test_what_a_closed_step_waits_for_is_told_by_the_flight_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(seq: int, state: str, name: str = "0") -> dict[str, Any]:
        sizes = {"input_sizes": [[1000, 3]], "input_dtypes": ["Float"], "profiling_name": "nccl:all_reduce"}
        return {"process_group": [name, ""], "collective_seq_id": seq, "state": state, "is_p2p": False, **sizes}

    text = json.dumps({"entries": [entry(7, "completed"), entry(8, "started"), entry(9, "scheduled"), entry(3, "scheduled", "gone")]})
    monkeypatch.setattr(flight_recorder, "_runtime", lambda names: (lambda *_: text if "nccl" in names[0] else "{}", None))
    counted, group = Counted(), SimpleNamespace(name="0", size=2)
    known: Any = {"0": group}
    assert counted.overdue(2000, 1000, (5, 1500), known) == [], "young"
    told = counted.overdue(3000, 1000, (5, 1500), known)
    assert [(operation.step, operation.seq, operation.name, operation.bytes) for operation in told] == [
        (5, 8, "all_reduce", 12_000), (5, 9, "all_reduce", 12_000),
    ]  # fmt: skip
    assert counted.overdue(4000, 1000, (5, 1500), known) == [], "once"
