# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side: what changed, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dtscope_jupyter.analysis.bandwidth import bandwidth
from dtscope_jupyter.analysis.breakdown import breakdown
from dtscope_jupyter.analysis.columns import NONE, ints
from dtscope_jupyter.analysis.overlap import of_timed_steps, overlap
from dtscope_jupyter.analysis.recorded import MS
from dtscope_jupyter.analysis.waits import waits

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

Row: TypeAlias = tuple[str, str, float, float, float]
_PER_STEP = ("comm_ms", "compute_ms", "overlap_ms", "exposed_ms")
_WORTH = 0.01  # of all bytes moved: operations below it are not compared
_WIDTH = 1.4826  # of the median absolute deviation, to equal a normal distribution's standard deviation


def compare(a: Tables, b: Tables) -> list[Row]:
    """Of each figure that either run has: name, unit, its value in a, in b, and its spread between steps.

    Figures per step are means over ranks of the median over steps; the spread is the larger of both runs' median absolute
    deviation over steps (times 1.4826); of waits between hosts at least what their clocks leave uncertain. NaN where unknown.
    """
    first, second = _figures(a), _figures(b)
    none = ("", np.nan, np.nan)
    rows: list[Row] = []
    for name in dict.fromkeys([*first, *second]):
        unit, value, spread = first.get(name, none)
        other_unit, other, other_spread = second.get(name, none)
        rows.append((name, unit or other_unit, value, other, _larger(spread, other_spread)))
    return rows


def _larger(a: float, b: float) -> float:
    return float(np.nanmax([a, b])) if not (np.isnan(a) and np.isnan(b)) else float("nan")


def _figures(tables: Tables) -> dict[str, tuple[str, float, float]]:
    """Unit, value and spread of each figure of one run."""
    found = {"steps": ("", float(len(np.unique(ints(tables["steps"], "step")))), np.nan)}
    found |= {"step": _summary(_durations(tables), "ms")}
    by_step = overlap(tables, ["rank", "step"])
    if not len(by_step):
        by_step = overlap(tables, "rank").assign(step=0)
    found |= {name.removesuffix("_ms"): _summary(by_step, name) for name in _PER_STEP}
    found["overlap ratio"] = ("", found["overlap"][1] / found["comm"][1] if found["comm"][1] else np.nan, np.nan)
    waited = of_timed_steps(waits(tables, ["rank", "step"]), by_step)
    unit, wait, spread = _summary(waited, "wait_ms")
    unsure = float(waited["uncertainty_ms"].median()) if len(waited) else np.nan
    found |= {"wait": (unit, wait, _larger(spread, unsure) if unsure > 0 else spread), "transfer": _summary(waited, "transfer_ms")}
    idle = breakdown(tables, ["rank", "step"])
    found |= {"idle": _summary(idle, "idle_ms")}
    moved = bandwidth(tables)
    for row in moved[moved["bytes"] > _WORTH * moved["bytes"].sum()].to_dict("records"):
        found[f"bus bandwidth {row['operation']}"] = ("GB/s", float(row["bus_gb_s"]), np.nan)
    return {name: figure for name, figure in found.items() if not np.isnan(figure[1])}


def _durations(tables: Tables) -> pd.DataFrame:
    import pandas as pd

    steps = tables["steps"]
    start, end = ints(steps, "start_ns"), ints(steps, "end_ns")
    length = np.where((start == NONE) | (end == NONE), np.nan, (end - start) / MS)
    return pd.DataFrame({"rank": ints(steps, "rank"), "step": ints(steps, "step"), "ms": length})


def _summary(frame: Any, name: str) -> tuple[str, float, float]:
    """Unit, mean over ranks of the median over steps, and spread over steps of the mean over ranks."""
    if not len(frame):
        return "ms", np.nan, np.nan
    by_step = frame.groupby("step")[name].mean().dropna()
    spread = _WIDTH * (by_step - by_step.median()).abs().median() if len(by_step) > 2 else np.nan  # noqa: PLR2004
    return "ms", float(frame.groupby("rank")[name].median().mean()), float(spread)
