# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Loops of short synchronisations count as a whole; single ones as long as they were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter import intervals
from dtscope_jupyter.diagnosis.activity import loops


def _set(starts: list[int], length: int) -> intervals.Set:
    low = np.array(sorted(starts), dtype=np.int64)
    return intervals.union(low, low + length)


def test_a_loop_is_one_interval() -> None:
    starts, ends = loops(_set([100_000 * number for number in range(20)], 10_000))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 1_910_000)]


def test_few_or_distant_ones_stay_apart() -> None:
    few = _set([100_000 * number for number in range(7)], 10_000)
    distant = _set([300_000 * number for number in range(20)], 10_000)
    for told in (few, distant, _set([], 1)):
        assert [part.tolist() for part in loops(told)] == [part.tolist() for part in told]


@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(1, 40))
def test_nothing_told_is_lost_and_only_close_gaps_are_filled(starts: list[int], length: int) -> None:
    told = _set([1000 * start for start in starts], 1000 * length)
    found = loops(told)
    assert intervals.total(intervals.difference(told, found)) == 0
    filled = intervals.difference(found, told)
    assert ((filled[1] - filled[0]) <= 250_000).all()
