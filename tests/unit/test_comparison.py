# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side: what is said and drawn of each change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analysis_rows import tables, two_ranks

from dtscope_jupyter.analysis.compare import compare
from dtscope_jupyter.comparison import Comparison
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.run import Run

_ROWS = (("step", "ms", 50.0, 60.0, 1.0), ("wait", "ms", 1.0, 12.0, 0.5), ("idle", "ms", 4.0, 3.0, 2.0), ("input", "ms", 0.0, 2.0, 0.1))


def test_text_says_what_lies_within_the_spread() -> None:
    lines = str(Comparison(("a", "b"), _ROWS)).splitlines()
    assert lines[1].split() == ["step", "50.000", "->", "60.000", "ms", "(+20.0", "%)"]
    assert lines[3].endswith("(-25.0 %) within the spread of steps")
    assert lines[4].split() == ["input", "0.000", "->", "2.000", "ms"]


def test_text_has_counts_as_such_and_great_changes_as_factors() -> None:
    rows = (("steps", "", 60.0, 60.0, np.nan), ("wait", "ms", 0.17, 33.0, 0.5))
    lines = str(Comparison(("a", "b"), rows)).splitlines()
    assert [line.split() for line in lines[1:]] == [["steps", "60", "->", "60"], ["wait", "0.170", "->", "33.000", "ms", "(x", "194)"]]


def test_only_a_run_can_be_compared_with() -> None:
    path: Any = "dtscope-runs/other"
    with pytest.raises(DtscopeError, match=r"^a str is no run: .* run.compare\(dts.open\(PATH\)\)$"):
        Run(tables()).compare(path)


def test_a_large_change_hides_no_small_one() -> None:
    drawn = Comparison(("a", "b"), _ROWS).figure()
    bars = drawn.data[0]
    lengths = dict(zip(bars.y, np.abs(np.array(bars.x, float)), strict=True))
    assert lengths["wait"] < 6 * lengths["step"], "1,100 % beside 20 %"
    assert np.array(bars.customdata, float).tolist() == [-25.0, 1100.0, 20.0]
    axis = drawn.layout.xaxis
    assert [round(float(np.sinh(place)) * 10) for place in axis.tickvals] == [int(words) for words in axis.ticktext]
    assert axis.range[0] < min(np.array(bars.x, float)) < max(np.array(bars.x, float)) < axis.range[1]


def test_of_runs_without_steps_there_is_still_a_figure() -> None:
    rows = tables(**two_ranks(1))
    assert Comparison(("a", "b"), tuple(compare(rows, tables()))).figure() is not None
