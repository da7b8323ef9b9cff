# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How much more a rank did than the others, against the definition spelled out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.diagnosis import blame

_ROWS = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.floats(-1e6, 1e6) | st.just(float("nan"))), max_size=40)


def _spelled_out(rows: list[tuple[int, bool, float]], count: int) -> float:
    ahead = []
    for number in range(count):
        mine = [value for window, own, value in rows if window == number and own]
        rest = [value for window, own, value in rows if window == number and not own]
        if mine and rest:
            ahead.append(mine[0] - float(np.median(rest)))
    known = [value for value in ahead if np.isfinite(value)]
    return float(np.median(known)) if known else 0.0


@given(_ROWS)
def test_the_excess_is_the_median_of_what_the_rank_has_beyond_the_median_of_the_others(rows: list[tuple[int, bool, float]]) -> None:
    window, own, values = (np.array([row[place] for row in rows], kind) for place, kind in enumerate((np.int64, bool, np.float64)))
    assert blame._excess(values, own, window, 6) == _spelled_out(rows, 6)


def test_of_two_others_it_is_the_mean_and_of_none_there_is_no_excess() -> None:
    values, own = np.array([9.0, 1.0, 4.0, 7.0]), np.array([True, False, False, True])
    assert blame._excess(values, own, np.array([0, 0, 0, 1]), 3) == 9.0 - 2.5
    assert blame._excess(values[:1], own[:1], np.array([0]), 1) == 0.0
