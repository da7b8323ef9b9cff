# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets: their order, when each begins and how long it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis.activity import pair
from dtscope_jupyter.analysis.columns import NONE, Ints, ints
from dtscope_jupyter.analysis.keys import columns_of, keys_of
from dtscope_jupyter.analysis.lines import Groups
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

BY = ("rank", "step", "process_group", "operation", "phase")


def buckets(tables: Tables, by: str | Sequence[str] = "rank") -> pd.DataFrame:
    """DDP's buckets in the order in which they begin; means over what is no key.

    order = place by start within the rank's step, from 0; times count from the step's start; after_gradients = end of the bucket
    - the rank's last local gradient of the step, above 0 where no backward is left to hide it.

    Args:
        tables: The run's tables.
        by: One or several of rank, step, process_group, operation, phase, beside the bucket.

    Returns:
        `by`, bucket, order, steps, bytes, enqueue_ms, start_ms, end_ms, duration_ms, after_gradients_ms; NaN where unknown.

    Raises:
        DtscopeError: An unknown `by`.
    """
    import pandas as pd

    keys = list(keys_of(by, BY))

    table = tables["collectives"]
    bucket, step, start = ints(table, "bucket"), ints(table, "step"), ints(table, "start_ns")
    rows = table.filter(pa.array((bucket != NONE) & (step != NONE) & (start != NONE)))
    rank, step, start, end = (ints(rows, name) for name in ("rank", "step", "start_ns", "end_ns"))
    begin = _of_steps(tables["steps"], "start_ns", pair(rank, step))
    last = _of_steps(tables["gradients"], "ready_ns", pair(rank, step))
    frame = pd.DataFrame(columns_of(rows, keys) | {
        "of_rank": rank, "bucket": ints(rows, "bucket"), "of_step": step, "start": start, "bytes": _known(ints(rows, "bytes")),
        "enqueue_ms": _since(ints(rows, "enqueue_ns"), begin), "start_ms": _since(start, begin), "end_ms": _since(end, begin),
        "duration_ms": _since(end, start), "after_gradients_ms": _since(end, last),
    })
    frame["order"] = frame.groupby(["of_rank", "of_step"])["start"].rank(method="first") - 1
    done = frame.groupby([*keys, "bucket"], dropna=False).agg(
        order=("order", "mean"), steps=("of_step", "nunique"), bytes=("bytes", "mean"),
        **{name: (name, "mean") for name in ("enqueue_ms", "start_ms", "end_ms", "duration_ms", "after_gradients_ms")},
    )
    return done.reset_index().sort_values([*keys, "order"], kind="stable", ignore_index=True)


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
