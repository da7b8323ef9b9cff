# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from dtscope_jupyter.agent.device_clock import DeviceClock
from dtscope_jupyter.agent.device_times import DeviceTimes


class At:
    """A CUDA event that the device reached at this time of its own, ms."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def elapsed_time(self, other: Any) -> float:
        return float(other.ms - self.ms)


def test_times_go_on_as_the_base_of_the_clock_changes() -> None:
    clock = DeviceClock()
    for second in range(60):
        clock.learn(At(1e3 * second), 5_000_000_000 + second * 10**9)
    assert clock.retired
    assert abs(clock.time(At(59_500.0)) - 64_500_000_000) < 1_000_000


def test_an_event_that_was_the_base_is_used_again_and_never_freed() -> None:
    """To free an event may wait for the device."""
    times = DeviceTimes()
    events = [At(1e3 * second) for second in range(60)]
    for second, event in enumerate(events):
        times.clock.learn(event, second * 10**9)
        times.give_back([event])
    assert {id(event) for event in times._pool} == {id(event) for event in events if event is not times.clock.base}
    assert len(times._pool) == len(events) - 1
