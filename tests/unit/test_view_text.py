# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.view.text import column, duration, several, significant, size, table


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0 ms"), (1e-5, "10.0 ns"), (0.0701, "70.1 µs"), (1.44, "1.44 ms"), (26.42, "26.4 ms"), (182.4, "182 ms"), (1234, "1.23 s"),
     (90_000, "1.50 min"), (math.nan, "-"), (math.inf, "-")],
)  # fmt: skip
def test_durations(ms: float, words: str) -> None:
    assert duration(ms) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (125 * 2**20, "125 MiB"), (1.5 * 2**40, "1.50 TiB"), (math.nan, "-")],
)
def test_sizes(count: float, words: str) -> None:
    assert size(count) == words


@given(st.floats(-1e300, 1e300) | st.just(math.nan))
def test_significant_is_short_and_close(value: float) -> None:
    words = significant(value)
    assert len(words) <= 10
    if math.isfinite(value):
        assert float(words) == pytest.approx(value, rel=0.0051)


def test_columns_share_their_decimals() -> None:
    assert column([1.234, 45.6, math.nan]) == ["1.2", "45.6", "-"]
    assert column([0.0, 0.0]) == ["0", "0"]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([2], "rank 2"), ([], "no rank"), ([3, 0, 1, 2], "ranks 0 to 3"), ([0, 5], "ranks 0 and 5"),
     ([0, 2, 4, 6, 8, 10, 12], "ranks 0, 2, 4, 6, 8 and 2 more")],
)  # fmt: skip
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert several(ranks) == words


def test_tables_are_right_aligned() -> None:
    assert table(["rank", "ms"], [["0", "1.5"], ["10", "22.5"]]) == "rank    ms\n   0   1.5\n  10  22.5"
