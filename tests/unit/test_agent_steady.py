# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of which hooks only leave marks are the steps that `Progress` would have seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent import steady
from dtscope_jupyter.agent.counted import Backward
from dtscope_jupyter.agent.progress import Progress, Segment
from dtscope_jupyter.agent.steady import Expected

_STEP = ("zero", "backward", "optimizer")
_UNITS: tuple[tuple[str, ...], ...] = (
    _STEP,
    ("batch", *_STEP),
    ("zero", "backward", "backward", "optimizer"),
    ("zero", "backward"),
    ("zero", "backward", "skip"),
    ("zero", "backward", "all_reduce", "optimizer"),
    ("zero", "backward", "batch", "optimizer"),
    ("zero", "backward", "other", "optimizer"),
    ("broadcast",),
    ("optimizer",),
    ("expire",),
)


class Clock:
    """The same times for both."""

    def __init__(self) -> None:
        self.time = 1_000

    def __call__(self) -> int:
        return self.time


class Rank:
    """Tells `Progress` what `Steps` would, in the same order; with `marks` of 0 never by marks alone."""

    def __init__(self, clock: Clock, marks: int) -> None:
        self.clock, self.marks = clock, marks
        self.progress = Progress()
        self.optimizers = SimpleNamespace(), SimpleNamespace()
        self.progress.optimizers_alive = 1
        self.reset = False
        self.left = 0
        self.progress.steady.on_leave.append(self._leaves)

    def _leaves(self, _at: int) -> None:
        self.left += 1

    def does(self, what: str) -> None:
        getattr(self, what, lambda: None)()

    def zero(self) -> None:
        self.reset = True

    def batch(self) -> None:
        self.progress.active(self.clock())

    def backward(self) -> None:
        reset, self.reset = self.reset, False
        if not self.progress.steady.backward_begins():
            self.progress.backward_begins(self.clock(), reset=reset, updated=False)
        self.clock.time += 7
        if not self.progress.steady.backward_ends():
            self.progress.backward_ends(self.clock())

    def optimizer(self, number: int = 0) -> None:
        one: Any = self.optimizers[number]
        begun = self.clock()
        if number:
            self.progress.optimizers_alive = 2
            self.progress.steady.expire()
        marked = self.progress.steady.optimizer_begins(one)
        if not marked:
            self.progress.phase = "optimizer"
        self.clock.time += 3
        if not (marked and self.progress.steady.optimizer_ends()):
            self._ended(one, begun)

    def other(self) -> None:
        self.optimizer(1)

    def skip(self) -> None:
        self.progress.steady.leave()
        self._ended(self.optimizers[0], self.clock(), skipped=True)

    def _ended(self, optimizer: Any, begun: int, *, skipped: bool = False) -> None:
        step = self.progress.step
        self.progress.optimizer_ends(id(optimizer), begun, self.clock(), skipped=skipped)
        if self.marks and self.progress.step != step and self.progress.may_repeat(optimizer):
            self.progress.steady.enter(lambda: optimizer, self.marks, (0, 1), [])

    def all_reduce(self) -> None:
        self.progress.collective("all_reduce 8", "train.py:3", self.clock())
        self.progress.collective_over(self.clock())

    def broadcast(self) -> None:
        self.progress.collective("broadcast 8", "train.py:9", self.clock())

    def expire(self) -> None:
        self.progress.steady.expire()

    def state(self) -> tuple[Any, ...]:
        return self.progress.step, self.progress.phase, self.progress.scalar_step, self.progress.started

    def steps(self) -> list[tuple[Any, ...]]:
        return [(step, *_seen(one)) for step, one in self.progress.closed]


def _seen(one: Segment | steady.Marks) -> tuple[Any, ...]:
    times = one.start, one.backward_start, one.backward_end, one.optimizer_start, one.end
    if isinstance(one, Segment):
        return *times, one.micro_batches, one.skipped, one.collectives, len(one.optimizers)
    return *times, 1, False, 0, 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steady, "now", clock)
    return clock


@given(st.lists(st.sampled_from(_UNITS) | st.just(_STEP), max_size=30), st.integers(2, 9))
def test_marks_tell_what_progress_would_have_seen(units: list[tuple[str, ...]], marks: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(steady, "now", clock)
        ranks = Rank(clock, marks), Rank(clock, 0)
        for what in (*_STEP, *(each for unit in units for each in unit)):
            begun = clock.time
            for rank in ranks:
                clock.time = begun
                rank.does(what)
            assert ranks[0].state() == ranks[1].state(), what
            clock.time += 11
        for rank in ranks:
            rank.progress.finish(clock())
        assert ranks[0].steps() == ranks[1].steps()


def test_most_steps_of_a_regular_program_leave_no_more_than_marks(clock: Clock) -> None:
    rank = Rank(clock, 5)
    for _ in range(21):
        for what in _STEP:
            rank.does(what)
        clock.time += 10
    kinds = [isinstance(one, steady.Marks) for _, one in rank.progress.closed]
    assert kinds == [False] + ([True] * 4 + [False]) * 4
    assert rank.left == 4, "the last of five is seen as ever"


def _expecting(rank: Rank, number: int) -> Expected:
    group: Any = SimpleNamespace(name="g", size=2)
    expected = Expected(group, lambda: number, [(64, None, (16,))])
    rank.progress.steady.enter(lambda: rank.optimizers[0], 5, (0, 1), [expected])
    return expected


def test_a_backward_that_does_not_end_tells_what_it_waits_for_once(clock: Clock) -> None:
    rank = Rank(clock, 0)
    for what in _STEP:
        rank.does(what)
    _expecting(rank, 7)
    marks = rank.progress.steady
    assert marks.stuck(10**12) == [], "no backward is under way"
    assert marks.backward_begins()
    begun = clock.time
    assert marks.stuck(begun - 1) == [], "not for long"
    (found,) = marks.stuck(begun)
    assert isinstance(found, Backward)
    assert (found.step, found.first, found.at) == (1, 7, begun)
    assert marks.stuck(begun) == marks.backwards() == []
    assert not marks.backward_ends(), "it is seen as ever"
    assert rank.progress.phase == "backward"
