# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Copies that a profiler saw on a device, made for the sake of communication: casts, DDP's bucket copies, contiguous copies.

An operator is one of them by its name (DDP's own), or since a collective follows it on its thread with nothing but bookkeeping
between: what is cast or made contiguous there is what is sent. Its time is that of the kernels and copies it launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals

_BUCKETS = ("reducer::copy_bucket_to_grad", "reducer::mul_out")
_CASTS = ("aten::_to_copy", "aten::to")
_STRIDED = ("aten::contiguous", "aten::clone")
_SENDS = ("c10d::", "record_param_comms", "_c10d_functional::", "nccl:")
_ENDS = ("autograd::engine", "distributed::reducer::")
"""What is cast before one of these is cast for the model's sake: autocast's backward casts each gradient."""
_NEAR_NS = 200_000
"""A collective called so soon after a copy sends what was copied."""


@dataclass(frozen=True)
class _Operators:
    """Host operators of one kind of rows: place in the table, rank, thread, start, end, by rank, thread and start."""

    row: Ints
    line: Ints
    start: Ints
    end: Ints


def copies(tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Copies by rank, cause and operator, as `analysis.copies` has them: count, bytes (0 where unknown), total_ms on the device, line."""
    import pandas as pd

    spans = tables["spans"]
    name, names = columns.codes(spans, "name")
    host = _operators(spans, columns.is_any(spans, "kind", ("cpu_op",)))
    sends, ends = _named(name, names, _SENDS)[host.row], _named(name, names, _ENDS)[host.row]
    parts = []
    for cause, words, sent in (("bucket_copy", _BUCKETS, False), ("dtype_cast", _CASTS, True), ("non_contiguous", _STRIDED, True)):
        chosen = _named(name, names, words)[host.row]
        rows = host.row[chosen]
        if sent:
            rows = rows[_before(host, chosen, sends, ends)]
        parts.append(_frame(spans, _outermost(spans, rows), cause))
    grouped = pd.concat(parts, ignore_index=True).groupby(["rank", "cause", "what"], sort=True)
    return grouped.agg(
        count=("ms", "size"), bytes=("bytes", "sum"), total_ms=("ms", "sum"), steps=("step", "nunique"), line=("line", "first")
    ).reset_index()


def _named(name: Ints, names: list[str], words: tuple[str, ...]) -> Bools:
    found: Bools = np.array([any(word in text for word in words) for text in names] + [False])[name]
    return found


def _operators(spans: pa.Table, chosen: Bools) -> _Operators:
    start, end = columns.ints(spans, "start_ns"), columns.ints(spans, "end_ns")
    row = np.flatnonzero(chosen & (start != NONE) & (end != NONE))
    line = np.unique(_lines(spans), return_inverse=True)[1].ravel()[row] if len(row) else row
    order = np.lexsort((start[row], line))
    row = row[order]
    return _Operators(row, line[order], start[row], end[row])


def _lines(spans: pa.Table) -> Ints:
    """A number for each rank and thread."""
    rank, thread = columns.ints(spans, "rank"), columns.ints(spans, "thread")
    threads = np.unique(thread, return_inverse=True)[1].ravel()
    return rank * (int(threads.max(initial=0)) + 1) + threads


def _before(host: _Operators, chosen: Bools, sends: Bools, ends: Bools) -> Bools:
    """Which of the chosen operators a collective follows soon on the same thread, with no other node of the backward between."""
    found = np.zeros(int(chosen.sum()), dtype=bool)
    line, end = host.line[chosen], host.end[chosen]
    for one in np.unique(line).tolist():
        mine, others = line == one, (host.line == one) & (sends | ends)
        starts, is_send = host.start[others], sends[others]
        if len(starts):
            at = np.searchsorted(starts, end[mine])
            next_one = np.minimum(at, len(starts) - 1)
            found[mine] = (at < len(starts)) & is_send[next_one] & (starts[next_one] - end[mine] < _NEAR_NS)
    return found


def _outermost(spans: pa.Table, rows: Ints) -> Ints:
    """Without operators inside another of them on the same thread."""
    if not len(rows):
        return rows
    line, start, end = _lines(spans)[rows], columns.ints(spans, "start_ns")[rows], columns.ints(spans, "end_ns")[rows]
    order = np.lexsort((-end, start, line))
    rows, line, start, end = rows[order], line[order], start[order], end[order]
    latest = np.full(len(rows), np.iinfo(np.int64).min)
    for one in np.unique(line).tolist():
        mine = line == one
        latest[mine] = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[mine])[:-1]))
    return rows[start >= latest]


def _frame(spans: pa.Table, rows: Ints, cause: str) -> pd.DataFrame:
    import pandas as pd

    step, names = columns.reals(spans, "step")[rows], columns.texts(*columns.codes(spans, "name"))
    size, line = columns.ints(spans, "bytes")[rows], columns.texts(*columns.codes(spans, "line"))
    ms, moved = _launched(spans, rows)
    return pd.DataFrame({
        "rank": columns.ints(spans, "rank")[rows], "step": step, "cause": cause, "what": [names[row] for row in rows.tolist()],
        "bytes": np.where(size == NONE, moved, size), "ms": ms, "line": [line[row] for row in rows.tolist()],
    })  # fmt: skip


def _launched(spans: pa.Table, rows: Ints) -> tuple[Reals, Ints]:
    """Milliseconds, and bytes where told, of what was launched within each of the operators."""
    start, end, lines = columns.ints(spans, "start_ns"), columns.ints(spans, "end_ns"), _lines(spans)
    if not len(rows):
        return np.zeros(0), np.zeros(0, np.int64)
    launches = np.flatnonzero(columns.is_any(spans, "kind", ("launch",)) & (start != NONE))
    first = int(start[launches].min(initial=int(start[rows].min())))
    reach = int(max(end[rows].max(), start[launches].max(initial=NONE))) - first + 1
    at = lines[launches] * reach + start[launches] - first
    launches, at = launches[np.argsort(at, kind="stable")], np.sort(at)
    low, high = (np.searchsorted(at, lines[rows] * reach + edge[rows] - first) for edge in (start, end))
    length, moved = _of_launches(spans, launches)
    total, size = (np.concatenate((np.zeros(1, np.int64), np.cumsum(each))) for each in (length, moved))
    return (total[high] - total[low]) / 1e6, size[high] - size[low]


def _of_launches(spans: pa.Table, launches: Ints) -> tuple[Ints, Ints]:
    """Nanoseconds and bytes of the kernel or copy that each launch led to, by its correlation; 0 where there is none."""
    correlation, rank = columns.ints(spans, "correlation"), columns.ints(spans, "rank")
    start, end, size = (columns.ints(spans, each) for each in ("start_ns", "end_ns", "bytes"))
    device = np.flatnonzero(columns.is_any(spans, "kind", ("compute", "memcpy", "memset")) & (correlation != NONE) & (end >= start))
    if not len(device) or not len(launches):
        return np.zeros(len(launches), np.int64), np.zeros(len(launches), np.int64)
    most = int(max(correlation[device].max(), correlation[launches].max())) + 1
    key = rank[device] * most + correlation[device]
    device, key = device[np.argsort(key, kind="stable")], np.sort(key)
    wanted = rank[launches] * most + correlation[launches]
    place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    hit = key[place] == wanted
    found = device[place]
    return np.where(hit, end[found] - start[found], 0), np.where(hit & (size[found] != NONE), size[found], 0)
