# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import diagnose
from dtscope_jupyter.simulate import Fault

EVERYBODY = (0, 1, 2, 3)
LARGE: dict[str, Any] = {"gradient_bytes": 2**31}


def said(*faults: Fault, steps: int = 24, **program: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    found = diagnose(simulate.run(4, steps, faults, **program)).findings
    return [(each.kind, each.cause, each.ranks) for each in found]


@pytest.mark.parametrize("size", [1.6, 2.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_kernels_that_take_longer_beside_communication(size: float, seed: int) -> None:
    assert said(Fault("contention", "sm", (), size), steps=12, seed=seed, spans=True, **LARGE) == [("contention", "sm", EVERYBODY)]


def test_the_slowdown_is_the_one_that_was_made() -> None:
    (finding,) = diagnose(simulate.run(4, 12, [Fault("contention", "sm", (), 1.8)], spans=True, **LARGE)).findings
    assert finding.evidence["slowdown"] == pytest.approx(1.8, rel=0.1)
    assert finding.cost_ms == pytest.approx(finding.evidence["lost_ms"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_usual_slowdown_beside_communication_is_none(seed: int) -> None:
    assert said(steps=12, seed=seed, spans=True, **LARGE) == []


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_two_process_groups_that_share_time(every: int, seed: int) -> None:
    fault = Fault("contention", "process_group", (), 2.5, first=2, every=every)
    assert said(fault, seed=seed, second_group=True, gradient_bytes=2**32) == [("contention", "process_group", EVERYBODY)]


def test_only_the_steps_in_which_groups_meet_are_charged() -> None:
    fault = Fault("contention", "process_group", (), 2.5, first=2, every=3)
    (finding,) = diagnose(simulate.run(4, 24, [fault], second_group=True, gradient_bytes=2**32)).findings
    assert finding.steps == tuple(range(2, 24, 3))
    assert finding.evidence["process_groups"] == ["0", "ep"]


def test_two_groups_apart_in_time_are_no_contention() -> None:
    assert said(second_group=True, gradient_bytes=2**32) == []


@pytest.mark.parametrize("device", [None, "NVIDIA H200"])
@pytest.mark.parametrize("times", [{"first": 20, "last": 60}, {"first": 40}])
def test_an_outsider_on_the_link(device: str | None, times: dict[str, int]) -> None:
    fault = Fault("contention", "link", (), 4, **times)
    (finding,) = diagnose(simulate.run(4, 100, [fault], counters=True, device=device, **LARGE)).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("contention", "link", EVERYBODY)
    assert set(finding.steps) <= set(range(times["first"], times.get("last", 100)))
    assert finding.evidence["foreign_bytes_s"] == pytest.approx(90e9, rel=0.2)


def test_a_slow_link_that_carries_nothing_else_is_no_outsider() -> None:
    fault = Fault("slow_link", "bandwidth", (), 4, first=20)
    assert said(fault, steps=100, counters=True, **LARGE) == [("slow_link", "bandwidth", EVERYBODY)]


def test_without_samples_of_the_link_nobody_is_accused() -> None:
    fault = Fault("contention", "link", (), 4, first=20)
    assert said(fault, steps=100, **LARGE) == [("slow_link", "bandwidth", EVERYBODY)]


@pytest.mark.parametrize("world_size", [2, 16])
def test_a_healthy_run_with_samples_of_its_links(world_size: int) -> None:
    assert diagnose(simulate.run(world_size, 100, counters=True, seed=world_size, **LARGE)).findings == []
