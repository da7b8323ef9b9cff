# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The mean step of each rank in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

COLUMNS = ("step_ms", "compute_ms", "comm_ms", "exposed_ms", "overlap_ratio", "wait_ms", "times_last")


def step_times(tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """rank, step, step_ms of every step whose both ends are known."""
    steps = tables["steps"].select(["rank", "step", "start_ns", "end_ns"]).to_pandas().dropna()
    steps["step_ms"] = (steps["end_ns"] - steps["start_ns"]).astype("int64") / 1e6
    times: pd.DataFrame = steps[["rank", "step", "step_ms"]]
    return times


def numbers(overlap: pd.DataFrame, waits: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """By rank: mean of its steps of step_ms, compute_ms, comm_ms, exposed_ms and wait_ms, and the ratio of its sums.

    Each is of the steps in which it is known: of step_ms and exposed_ms that can be more than of the others.
    `overlap` is by rank and step (by rank where the run has no steps), `waits` by rank, `steps` as `step_times`.
    """
    by_rank = overlap.groupby("rank", observed=True)
    mean = by_rank[["compute_ms", "comm_ms", "exposed_ms"]].mean()
    total = by_rank[["overlap_ms", "comm_ms"]].sum(min_count=1)
    mean["overlap_ratio"] = total["overlap_ms"] / total["comm_ms"].where(total["comm_ms"] > 0)
    frame = mean.join(steps.groupby("rank")["step_ms"].mean(), how="outer")
    counted = by_rank["comm_ms"].count().reindex(frame.index)
    waited = waits.set_index("rank") if len(waits) else pd.DataFrame(columns=["wait_ms", "times_last"], dtype=float)
    frame["wait_ms"] = waited["wait_ms"].reindex(frame.index).astype(float) / counted.where(counted > 0)
    frame["times_last"] = waited["times_last"].reindex(frame.index).astype(float)
    frame.index = frame.index.astype(np.int64)
    return frame[list(COLUMNS)].sort_index()
