# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets: their order, when each begins and how long it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis.activity import pair
from dtscope_jupyter.analysis.columns import NONE, Ints, ints
from dtscope_jupyter.analysis.lines import Groups
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables


def buckets(tables: Tables) -> pd.DataFrame:
    """Each bucket of each rank, in the order in which the buckets begin; means over steps.

    order = place by start within the step, from 0; times count from the step's start; after_gradients = end of the bucket
    - the rank's last local gradient of the step, above 0 where no backward is left to hide it.

    Returns:
        rank, bucket, order, steps, bytes, enqueue_ms, start_ms, end_ms, duration_ms, after_gradients_ms; NaN where unknown.
    """
    import pandas as pd

    table = tables["collectives"]
    bucket, step, start = ints(table, "bucket"), ints(table, "step"), ints(table, "start_ns")
    rows = table.filter(pa.array((bucket != NONE) & (step != NONE) & (start != NONE)))
    rank, step, start, end = (ints(rows, name) for name in ("rank", "step", "start_ns", "end_ns"))
    begin = _of_steps(tables["steps"], "start_ns", pair(rank, step))
    last = _of_steps(tables["gradients"], "ready_ns", pair(rank, step))
    frame = pd.DataFrame({
        "rank": rank, "bucket": ints(rows, "bucket"), "step": step, "start": start, "bytes": _known(ints(rows, "bytes")),
        "enqueue_ms": _since(ints(rows, "enqueue_ns"), begin), "start_ms": _since(start, begin), "end_ms": _since(end, begin),
        "duration_ms": _since(end, start), "after_gradients_ms": _since(end, last),
    })
    frame["order"] = frame.groupby(["rank", "step"])["start"].rank(method="first") - 1
    done = frame.groupby(["rank", "bucket"]).agg(
        order=("order", "mean"), steps=("step", "nunique"), bytes=("bytes", "mean"),
        **{name: (name, "mean") for name in ("enqueue_ms", "start_ms", "end_ms", "duration_ms", "after_gradients_ms")},
    )
    return done.sort_values(["rank", "order"], kind="stable").reset_index()


def _known(column: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.where(column == NONE, np.nan, column)


def _since(times: Ints, origin: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.where((times == NONE) | (origin == NONE), np.nan, (times - origin) / MS)


def _of_steps(table: pa.Table, name: str, wanted: Ints) -> Ints:
    """The largest value of a column in the step of each row; `NONE` where there is none."""
    groups = Groups.by((np.concatenate((pair(ints(table, "rank"), ints(table, "step")), wanted)),))
    largest = np.full(groups.count, NONE)
    np.maximum.at(largest, groups.of_row[: len(table)], ints(table, name))
    return largest[groups.of_row[len(table) :]]
