# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The largest kernels, and how much computation slows down beside communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis import conventions
from dtscope_jupyter.analysis.columns import NONE, Ints, codes, ints, is_any, texts
from dtscope_jupyter.analysis.lines import Axis, Covered, Groups
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

FEWEST = 3
"""Calls beside and alone that a kernel must have before its slowdown is told."""
SPREAD = 0.25
"""Widest spread of the calls alone, 10th to 90th percentile over the median: beyond it the name stands for different work."""


def kernels(tables: Tables, largest: int = 20) -> pd.DataFrame:
    """The names that took the most device time.

    Args:
        tables: The run's tables.
        largest: How many rows.

    Returns:
        kind, name, ranks, calls, total_ms (sum of durations over ranks), mean_ms, max_ms, share (of the device time of its kind).
    """
    import pandas as pd

    spans, length = _device_spans(tables["spans"])
    frame = pd.DataFrame({name: texts(*codes(spans, name)) for name in ("kind", "name")} | {"rank": ints(spans, "rank"), "ms": length / MS})
    done = frame.groupby(["kind", "name"], sort=False).agg(
        ranks=("rank", "nunique"), calls=("ms", "size"), total_ms=("ms", "sum"), mean_ms=("ms", "mean"), max_ms=("ms", "max"),
    )
    done["share"] = done["total_ms"] / done.groupby("kind")["total_ms"].transform("sum")
    return done.sort_values("total_ms", ascending=False, kind="stable").head(largest).reset_index()


def _device_spans(spans: pa.Table, kinds: tuple[str, ...] = conventions.DEVICE) -> tuple[pa.Table, Ints]:
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    keep = is_any(spans, "kind", kinds) & (start != NONE) & (end >= start)
    return spans.filter(pa.array(keep)), (end - start)[keep]


def slowdown(tables: Tables, largest: int = 20) -> pd.DataFrame:
    """Compute kernels that run beside communication against the same kernels alone, on the same rank.

    beside: more than half of the call is covered by communication kernels; alone: none of it. slowdown = median duration
    beside / median duration alone, for names with at least `FEWEST` calls of each whose calls alone last about as long as each
    other (`SPREAD`); lost = sum over the calls beside of (duration - median alone), what contention for the device cost.

    Returns:
        rank, name, calls_beside, calls_alone, beside_ms, alone_ms (medians), slowdown, lost_ms; most lost first.
    """
    import pandas as pd

    spans, length = _device_spans(tables["spans"], ("compute",))
    covered = _covered(spans, tables["spans"])
    frame = pd.DataFrame({"rank": ints(spans, "rank"), "name": texts(*codes(spans, "name")), "ms": length / MS})
    beside, alone = frame[covered * 2 > length], frame[covered == 0]
    keys = ["rank", "name"]
    both = beside.groupby(keys)["ms"].agg(calls_beside="size", beside_ms="median", total="sum")
    calls = alone.groupby(keys)["ms"]
    spread = (calls.quantile(0.9) - calls.quantile(0.1)) / calls.median()
    both = both.join(calls.agg(calls_alone="size", alone_ms="median")[spread <= SPREAD], how="inner")
    both = both[(both["calls_beside"] >= FEWEST) & (both["calls_alone"] >= FEWEST)]
    both["slowdown"] = both["beside_ms"] / both["alone_ms"]
    both["lost_ms"] = both.pop("total") - both["calls_beside"] * both["alone_ms"]
    done: pd.DataFrame = both.sort_values("lost_ms", ascending=False, kind="stable").head(largest).reset_index()
    return done[[*keys, "calls_beside", "calls_alone", "beside_ms", "alone_ms", "slowdown", "lost_ms"]]


def _covered(spans: pa.Table, every: pa.Table) -> Ints:
    """How much of each span runs beside communication kernels of its rank, ns."""
    comm, _ = _device_spans(every, ("comm",))
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    busy = ints(comm, "start_ns"), ints(comm, "end_ns")
    ranks = Groups.by((np.concatenate((ints(spans, "rank"), ints(comm, "rank"))),))
    mine, theirs = ranks.of_row[: len(spans)], ranks.of_row[len(spans) :]
    axis = Axis.of(ranks.count, (mine, start, end), (theirs, *busy))
    shift = axis.shift[mine]
    return Covered.of(axis.union(theirs, *busy)).within(start + shift, end + shift)
