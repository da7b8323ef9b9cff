# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which step it is, told from backwards, optimizer steps and collectives."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent.progress import HELD, Progress, Segment


class Program:
    """Plays a program on a clock that ticks with every event."""

    def __init__(self, optimizers: int) -> None:
        self.progress = Progress()
        self.progress.optimizers_alive = optimizers
        self.time = 0

    def tick(self) -> int:
        self.time += 10
        return self.time

    def backward(self, *, reset: bool = False, updated: bool = False) -> None:
        self.progress.backward_begins(self.tick(), reset=reset, updated=updated)
        self.progress.backward_ends(self.tick())

    def step(self, optimizer: int = 1, *, skipped: bool = False) -> None:
        self.progress.optimizer_ends(optimizer, self.tick(), self.tick(), skipped=skipped)

    def closed(self) -> list[tuple[int, Segment]]:
        self.progress.finish(self.tick())
        return [(step, one) for step, one in self.progress.closed if isinstance(one, Segment)]


def test_one_backward_one_step() -> None:
    program = Program(1)
    for _ in range(3):
        program.backward(reset=True)
        program.step()
    steps = program.closed()
    assert [number for number, _ in steps] == [0, 1, 2]
    assert all(segment.micro_batches == 1 and not segment.skipped for _, segment in steps)
    assert [segment.start for _, segment in steps[1:]] == [segment.end for _, segment in steps[:-1]]


def test_accumulation_is_one_step() -> None:
    program = Program(1)
    for _ in range(2):
        for part in range(4):
            program.backward(reset=part == 0)
        program.step()
    assert [segment.micro_batches for _, segment in program.closed()] == [4, 4]


def test_two_optimizers_in_turn_are_one_step() -> None:
    program = Program(2)
    times = []
    for _ in range(3):
        program.backward(reset=True)
        program.step(1)
        program.backward(reset=True)
        times.append(program.tick())
        program.step(2)
    steps = program.closed()
    assert [number for number, _ in steps] == [0, 1, 2]
    assert [segment.optimizers for _, segment in steps] == [[1, 2]] * 3
    assert [segment.micro_batches for _, segment in steps] == [2, 2, 2]


def test_held_times_find_their_step() -> None:
    program = Program(2)
    program.backward()
    program.step(1)
    assert program.progress.step == HELD
    first = program.tick()
    program.step(2)
    second = program.tick()
    program.step(1)
    assert program.progress.step == 1
    assert (program.progress.place(first), program.progress.place(second)) == (0, 1)


def test_a_critic_that_steps_more_often_is_a_step_each() -> None:
    program = Program(2)
    for _ in range(2):
        for _ in range(3):
            program.backward(reset=True)
            program.step(1)
        program.step(2)
    assert [segment.optimizers for _, segment in program.closed()] == [[1], [1], [1], [2, 1], [1], [1], [2]]


def test_an_optimizer_that_takes_over() -> None:
    program = Program(2)
    for optimizer in (1, 1, 1, 2, 2, 2):
        program.backward(reset=True)
        program.step(optimizer)
    assert [segment.optimizers for _, segment in program.closed()] == [[1], [1], [1], [2], [2], [2]]


def test_an_optimizer_in_place_of_one_that_is_gone_goes_on_counting_at_once() -> None:
    program = Program(1)
    seen = []
    for number in range(6):
        program.backward(reset=True)
        program.step(1 if number < 3 else 2)
        seen.append(program.progress.step)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert [number for number, _ in program.closed()] == list(range(6))


def test_a_skipped_step_counts_and_says_so() -> None:
    program = Program(1)
    for skipped in (False, True, False):
        program.backward(reset=True)
        program.step(skipped=skipped)
    assert [segment.skipped for _, segment in program.closed()] == [False, True, False]


def test_a_skip_that_only_reset_gradients_show() -> None:
    program = Program(1)
    program.backward()
    program.step()
    program.backward(reset=True)
    program.backward(reset=True)
    program.step()
    assert [segment.skipped for _, segment in program.closed()] == [False, True, False]


def test_hand_written_optimizer() -> None:
    program = Program(0)
    for _ in range(3):
        program.progress.active(program.tick())
        program.backward(updated=True)
    steps = program.closed()
    assert [number for number, _ in steps] == [0, 1, 2]
    assert not any(segment.skipped for _, segment in steps)


def test_hand_written_optimizer_with_accumulation() -> None:
    program = Program(0)
    for _ in range(2):
        program.backward(updated=True)
        program.backward()
    assert [segment.micro_batches for _, segment in program.closed()] == [2, 2]


def _reduced_by_hand(program: Program, *, next_batch: bool) -> list[tuple[int, int, int]]:
    """Gradients are reduced after the backward, parameters changed by hand: (step, begin, end) of each collective."""
    called = []
    for _ in range(3):
        program.backward(updated=True)
        for line in "ab":
            step, begin = program.progress.step, program.tick()
            program.progress.collective("all_reduce 4", line, begin)
            program.progress.collective_over(program.tick())
            called.append((step, begin, program.time))
        if next_batch:
            program.progress.active(program.tick())
    return called


def test_gradients_reduced_after_the_backward_are_within_their_step() -> None:
    program = Program(0)
    called = _reduced_by_hand(program, next_batch=False)
    steps = dict(program.closed())
    assert list(steps) == [0, 1, 2]
    assert all(steps[step].start <= begin < end <= steps[step].end for step, begin, end in called)
    assert [steps[step].end for step in (0, 1)] == [called[1][2], called[3][2]]


def test_the_next_batch_is_the_next_step_s() -> None:
    program = Program(0)
    called = _reduced_by_hand(program, next_batch=True)
    steps = dict(program.closed())
    assert [steps[step].end for step in (0, 1)] == [called[1][2] + 10, called[3][2] + 10]


def test_the_first_step_begins_with_the_collectives_of_its_forward() -> None:
    program = Program(1)
    program.progress.collective("all_reduce 8", "setup.py:1", program.tick())
    program.progress.sets_up()
    program.progress.collective("all_gather 8", "setup.py:2", program.tick())
    program.progress.collective("broadcast 8", "setup.py:3", program.tick())
    forward = program.tick()
    program.progress.collective("all_gather 8", "a.py:1", forward)
    program.progress.collective("all_gather 8", "a.py:1", program.tick())
    program.backward()
    program.step()
    ((number, segment),) = program.closed()
    assert (number, segment.start) == (0, forward)
    assert segment.backward_start > forward


def test_collectives_before_the_first_optimizer_are_no_part_of_the_first_step() -> None:
    program = Program(0)
    program.progress.collective("all_reduce 8", "setup.py:1", program.tick())
    program.progress.optimizers_alive = 1
    program.progress.sets_up(optimizer=True)
    begin = program.time
    program.backward()
    program.step()
    ((number, segment),) = program.closed()
    assert (number, segment.micro_batches) == (0, 1)
    assert segment.start == begin + 10


def test_collectives_alone_make_steps() -> None:
    program = Program(0)
    for _ in range(4):
        program.progress.collective("all_reduce", "a.py:3", program.tick())
        program.progress.collective("all_gather", "a.py:4", program.tick())
    assert [number for number, _ in program.closed()] == [0, 1, 2, 3]


def test_setting_up_is_no_step() -> None:
    program = Program(0)
    for _ in range(5):
        program.progress.collective("broadcast", "a.py:3", program.tick())
    assert program.closed() == []


def test_the_trailing_part_is_closed() -> None:
    program = Program(1)
    program.backward()
    program.step()
    program.backward(reset=True)
    steps = program.closed()
    assert [number for number, _ in steps] == [0, 1]
    assert steps[1][1].optimizer_end == 0


def test_what_follows_the_last_step_is_no_step() -> None:
    program = Program(1)
    program.backward()
    program.step()
    program.progress.active(program.tick())
    program.progress.collective("barrier", "a.py:9", program.tick())
    assert len(program.closed()) == 1


def test_a_scalar_after_the_optimizer_belongs_to_the_step_before() -> None:
    program = Program(1)
    program.backward()
    assert program.progress.scalar_step == 0
    program.step()
    assert program.progress.scalar_step == 0
    program.progress.active(program.tick())
    assert program.progress.scalar_step == 1


@given(st.lists(st.sampled_from(["backward", "one", "two", "skip", "collective", "active"]), max_size=60), st.integers(0, 3))
def test_steps_are_numbered_in_order_and_do_not_overlap(events: list[str], optimizers: int) -> None:
    program = Program(optimizers)
    for event in events:
        if event == "backward":
            program.backward(reset=len(events) % 2 == 0)
        elif event == "collective":
            program.progress.collective("all_reduce", "a.py:1", program.tick())
        elif event == "active":
            program.progress.active(program.tick())
        else:
            program.step(2 if event == "two" else 1, skipped=event == "skip")
    steps = program.closed()
    assert [number for number, _ in steps] == list(range(len(steps)))
    assert all(segment.start <= segment.end for _, segment in steps)
    assert all(before.end <= after.start for (_, before), (_, after) in pairwise(steps))
