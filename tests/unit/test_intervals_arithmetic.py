# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Interval arithmetic against counting every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter import intervals
from dtscope_jupyter.analysis.lines import Axis, Covered, Groups, total

_BASE = 1_790_000_000_000_000_000
_PAIR = st.tuples(st.integers(0, 40), st.integers(-3, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_PAIRS = st.lists(_PAIR, max_size=12)


def _arrays(pairs: list[tuple[int, int]]) -> tuple[intervals.Ints, intervals.Ints]:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2) + _BASE
    return both[:, 0], both[:, 1]


def _points(pairs: list[tuple[int, int]]) -> set[int]:
    return {_BASE + at for start, end in pairs for at in range(start, end)}


def _points_of(found: intervals.Set) -> set[int]:
    return {at for start, end in zip(*found, strict=True) for at in range(int(start), int(end))}


def _is_set(found: intervals.Set) -> bool:
    starts, ends = found
    return bool((starts < ends).all() and (ends[:-1] < starts[1:]).all() and starts.dtype == ends.dtype == np.int64)


@given(_PAIRS)
def test_union_covers_what_any_covers(pairs: list[tuple[int, int]]) -> None:
    found = intervals.union(*_arrays(pairs))
    assert _is_set(found)
    assert _points_of(found) == _points(pairs)
    assert intervals.total(found) == len(_points(pairs))


@given(_PAIRS, _PAIRS)
def test_intersection_and_difference(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = intervals.union(*_arrays(first)), intervals.union(*_arrays(second))
    both, only = intervals.intersection(a, b), intervals.difference(a, b)
    assert _is_set(both)
    assert _is_set(only)
    assert _points_of(both) == _points(first) & _points(second)
    assert _points_of(only) == _points(first) - _points(second)


def test_lengths_are_exact_at_unix_nanoseconds() -> None:
    starts = _BASE + np.arange(0, 3_000_000, 3, dtype=np.int64)
    assert intervals.total(intervals.union(starts, starts + 1)) == 1_000_000


def test_empty_sets() -> None:
    nothing = intervals.union(np.zeros(0, np.int64), np.zeros(0, np.int64))
    something = intervals.union(*_arrays([(1, 5)]))
    assert intervals.total(nothing) == 0
    assert _points_of(intervals.intersection(nothing, something)) == set()
    assert _points_of(intervals.difference(something, nothing)) == _points([(1, 5)])
    assert _points_of(intervals.difference(nothing, something)) == set()


_LINED = st.lists(st.tuples(st.integers(0, 4), _PAIR), max_size=20)


def _lined(rows: list[tuple[int, tuple[int, int]]]) -> tuple[intervals.Ints, intervals.Ints, intervals.Ints]:
    starts, ends = _arrays([pair for _, pair in rows])
    return np.array([line for line, _ in rows], dtype=np.int64), starts, ends


@given(_LINED, _LINED)
def test_many_lines_at_once_are_as_one_after_the_other(
    first: list[tuple[int, tuple[int, int]]], second: list[tuple[int, tuple[int, int]]],
) -> None:
    a, b = _lined(first), _lined(second)
    axis = Axis.of(5, a, b)
    united, other = axis.union(*a), axis.union(*b)
    lengths, common = axis.lengths(united), axis.lengths(intervals.intersection(united, other))
    for line in range(5):
        mine = _points([pair for of, pair in first if of == line])
        theirs = _points([pair for of, pair in second if of == line])
        assert lengths[line] == len(mine)
        assert common[line] == len(mine & theirs)


@given(_LINED, _LINED)
def test_how_much_of_each_interval_is_covered(
    first: list[tuple[int, tuple[int, int]]], second: list[tuple[int, tuple[int, int]]],
) -> None:
    second = [(line, pair) for line, pair in second if pair[0] <= pair[1]]
    a, b = _lined(first), _lined(second)
    axis = Axis.of(5, a, b)
    shift = axis.shift[b[0]]
    covered = Covered.of(axis.union(*a)).within(b[1] + shift, b[2] + shift)
    for (line, pair), length in zip(second, covered, strict=True):
        assert length == len(_points([pair]) & _points([other for of, other in first if of == line]))


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(5, 7)), max_size=30))
def test_groups_are_the_distinct_keys_in_order(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    groups = Groups.by((columns[:, 0], columns[:, 1]))
    assert list(zip(*(key.tolist() for key in groups.keys), strict=True)) == sorted(set(rows))
    assert [(int(groups.keys[0][g]), int(groups.keys[1][g])) for g in groups.of_row] == rows


def test_totals_are_exact_beyond_what_a_float_holds() -> None:
    big = np.array([2**60, 1, 1], dtype=np.int64)
    assert total(np.array([1, 1, 0]), big, 2).tolist() == [1, 2**60 + 1]


@pytest.mark.parametrize("count", [0, 1])
def test_an_axis_of_no_rows(count: int) -> None:
    nothing = np.zeros(0, np.int64)
    axis = Axis.of(count, (nothing, nothing, nothing))
    assert axis.lengths(axis.union(nothing, nothing, nothing)).tolist() == [0] * count
