# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How fast collectives move bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis.columns import NONE, Ints, Reals, codes, ints, reals
from dtscope_jupyter.analysis.keys import columns_of, keys_of
from dtscope_jupyter.analysis.pairing import paired
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

BY = ("operation", "process_group", "step", "phase", "dtype", "bytes", "rank", "bucket")
_SHARED = ("all_gather", "allgather", "reduce_scatter", "all_to_all", "alltoall", "gather", "scatter")


def factor(operation: str, ranks: Reals) -> Reals:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests' PERFORMANCE.md has it, for n ranks.

    all-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all, gather and scatter (n-1)/n; broadcast, reduce, send and receive 1.
    """
    name = operation.lower().lstrip("_")
    several = np.maximum(ranks, 1)
    if name.startswith(("all_reduce", "allreduce")):
        return 2 * (several - 1) / several
    if name.startswith(_SHARED):
        return (several - 1) / several
    return np.ones(len(ranks))


def bandwidth(tables: Tables, by: str | Sequence[str] = "operation") -> pd.DataFrame:
    """Algorithm and bus bandwidth, GB/s (1e9 bytes).

    algorithm = sum of bytes / sum of times; bus = sum of bytes * factor / sum of times, see `factor`. A collective's
    time is its transfer time, the shortest duration over its ranks, which need no common clock; for sends and receives the
    rank's own. Rows without bytes or time, as barriers, count for nothing.

    Args:
        tables: The run's tables.
        by: One or several of operation, process_group, step, phase, dtype, bytes, rank, bucket; with rank, each rank's own duration.

    Returns:
        `by`, collectives, bytes, time_ms, algorithm_gb_s, bus_gb_s.

    Raises:
        DtscopeError: An unknown `by`.
    """
    import pandas as pd

    keys = keys_of(by, BY)
    rows, time = _rows(tables, each_rank="rank" in keys)
    size, ranks = ints(rows, "bytes"), reals(rows, "group_size")
    keep = (size > 0) & (time > 0)
    rows, time, size, ranks = rows.filter(pa.array(keep)), time[keep], size[keep], ranks[keep]
    frame = pd.DataFrame(columns_of(rows, keys) | {"size": size, "time_ms": time / MS})
    frame["wire"] = size * _factors(rows, ranks)
    done = frame.groupby(list(keys), dropna=False, sort=True).agg(
        collectives=("size", "size"), total=("size", "sum"), wire=("wire", "sum"), time_ms=("time_ms", "sum"),
    )
    done["algorithm_gb_s"] = done["total"] / done["time_ms"] / MS
    done["bus_gb_s"] = done.pop("wire") / done["time_ms"] / MS
    done = done.reset_index()
    if "bytes" not in keys:
        return done.rename(columns={"total": "bytes"})
    return done.drop(columns="total")


def _factors(rows: pa.Table, ranks: Reals) -> Reals:
    code, names = codes(rows, "operation")
    found = np.ones(len(rows))
    for place, name in enumerate(names):
        mine = code == place
        found[mine] = factor(name, np.nan_to_num(ranks[mine], nan=1.0))
    return found


def _rows(tables: Tables, *, each_rank: bool) -> tuple[pa.Table, Ints]:
    """Rows to count, one a collective, or one a collective and rank; and their times in ns, 0 where unknown."""
    table = tables["collectives"]
    if each_rank:
        return table, _own(table)
    both = paired(tables)
    own = _own(both.rows)
    known = np.flatnonzero(own > 0)
    order = known[np.lexsort((own[known], both.of_row[known]))]
    shortest = order[np.unique(both.of_row[order], return_index=True)[1]]
    alone = _own(table.take(pa.array(both.rest)))
    places = np.concatenate((both.index[shortest], both.rest))
    return table.take(pa.array(places)), np.concatenate((own[shortest], alone))


def _own(table: pa.Table) -> Ints:
    start, end = ints(table, "start_ns"), ints(table, "end_ns")
    given = np.nan_to_num(reals(table, "duration_ms") * MS, nan=0.0).astype(np.int64)
    return np.where((start == NONE) | (end == NONE), given, end - start)
