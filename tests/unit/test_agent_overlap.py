# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A step's parts, few intervals or many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent.overlap import Overlap, lengths

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))), max_size=50)


@given(PAIRS, PAIRS)
def test_lengths_are_those_of_the_points_covered(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    first, second = ({point for start, end in pairs for point in range(start, end)} for pairs in (a, b))
    assert lengths(a, b) == (len(first), len(second), len(first & second))


def test_parts_of_a_step() -> None:
    overlap = Overlap()
    overlap.comm.extend([(0, 5_000_000), (12_000_000, 18_000_000), (25_000_000, 40_000_000)])
    overlap.blocked.extend([(16_000_000, 18_000_000), (28_000_000, 30_000_000)])
    overlap.input.append((8_000_000, 11_000_000))
    compute, comm, both, exposed, waits = overlap.of(10_000_000, 30_000_000)
    assert (compute, comm, both, exposed, waits) == (16.0, 11.0, 7.0, 4.0, 1.0)


def test_what_is_in_flight_is_waited_for() -> None:
    overlap = Overlap()
    assert overlap.settled(10)
    overlap.oldest_open = 5
    assert not overlap.settled(10)
    assert overlap.settled(4)


def test_what_a_device_does_belongs_to_the_step_that_issued_it() -> None:
    """Its last wait ends within the next step of its host, which has gone on."""
    overlap = Overlap()
    overlap.by_step = True
    overlap.communicates(3, 11_000_000, 14_000_000)
    overlap.blocks(3, 12_000_000, 14_000_000)
    overlap.communicates(4, 21_000_000, 24_000_000)

    assert overlap.of(0, 10_000_000, 3) == (8.0, 3.0, 1.0, 2.0, 0.0)
    assert overlap.of(10_000_000, 20_000_000, 4) == (10.0, 3.0, 3.0, 0.0, 0.0)
    assert overlap.of(20_000_000, 30_000_000, 5)[1] == 0.0


def test_what_was_issued_by_steps_that_are_never_written_is_forgotten() -> None:
    """The store is bounded; the newest steps are in it."""
    overlap = Overlap()
    overlap.by_step = True
    for step in range(5000):
        overlap.communicates(step, step, step + 1_000_000)

    assert overlap.of(0, 10, 0)[1] == 0.0
    assert overlap.of(0, 10, 4999)[1] == 1.0
    assert len(overlap._issued) < 2000
