# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are attached to in the midst of training begin with the same step, whatever comes first on which of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent.joining import Joining
from dtscope_jupyter.agent.progress import Progress

BOUNDARIES = 12
MS = 1_000_000


def _numbers(hooks: int, told: int, after: int, first: int, sequence: list[int]) -> dict[int, int]:
    """Of a rank that sees the boundaries from `hooks` on and is told before boundary `told`: the number of the step after each."""
    joins = Joining(hold=True)
    for boundary in range(hooks, BOUNDARIES):
        if boundary == told:
            joins.told(after, first)
        number = joins.boundary(0, sequence[boundary])
        if number is not None:
            return {later: number + later - boundary for later in range(boundary, BOUNDARIES)}
    return {}


@given(
    st.lists(st.integers(1, 5), min_size=BOUNDARIES, max_size=BOUNDARIES),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.floats(0, 1)), min_size=2, max_size=5),
    st.integers(0, 1000),
)
def test_all_ranks_number_alike(collectives: list[int], ranks: list[tuple[int, int, float]], first: int) -> None:
    sequence = [sum(collectives[: boundary + 1]) for boundary in range(BOUNDARIES)]
    told = []
    for hooks, _, share in ranks:  # hooks go in somewhere in the step before boundary `hooks`, and tell how far the group has come
        before = sequence[hooks - 1] if hooks else 0
        told.append(before + int(share * collectives[hooks]))
    found = [_numbers(hooks, hooks + late, max(told), first, sequence) for hooks, late, _ in ranks]
    begin = next(boundary for boundary in range(BOUNDARIES) if sequence[boundary] > max(told))
    for numbers in found:
        assert numbers
        assert numbers == {boundary: first + boundary - begin for boundary in numbers}


def test_who_is_told_nothing_begins_with_the_next_step() -> None:
    assert Joining().boundary(6, 0) == 7


def test_the_step_under_way_and_the_time_between_are_no_steps() -> None:
    progress = Progress()
    progress.optimizers_alive = 1
    progress.begin_anew(Joining())
    for step in range(3):
        _train(progress, 100 * step)
    assert [(number, segment.start, segment.end) for number, segment in progress.closed] == [
        (1, 90 * MS, 190 * MS), (2, 190 * MS, 290 * MS),
    ]  # fmt: skip
    progress.closed.clear()
    progress.begin_anew(Joining())
    _train(progress, 5000)
    assert not progress.closed
    _train(progress, 5100)
    assert [(number, segment.start, segment.end) for number, segment in progress.closed] == [(4, 5090 * MS, 5190 * MS)]
    assert progress.place(5100 * MS) == 4


def test_going_on_without_a_word_counts_on_from_the_first_work() -> None:
    progress = Progress()
    progress.optimizers_alive = 1
    _train(progress, 0)
    progress.begin_anew()
    _train(progress, 5000)
    assert [(number, segment.start) for number, segment in progress.closed] == [(0, 10 * MS), (1, 5010 * MS)]


def test_the_step_of_a_time_is_known_beyond_the_boundaries_that_are_kept() -> None:
    progress = Progress()
    progress.optimizers_alive = 1
    for step in range(3000):
        _train(progress, 100 * step)
    assert [progress.place((100 * step + 50) * MS) for step in (2500, 2999, 3000)] == [2500, 2999, 3000]


def _train(progress: Progress, at_ms: int) -> None:
    progress.backward_begins((at_ms + 10) * MS, reset=True, updated=True)
    progress.backward_ends((at_ms + 60) * MS)
    progress.optimizer_ends(1, (at_ms + 70) * MS, (at_ms + 90) * MS)
