# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives that several sources saw: the most exact row stands, its gaps filled from the others."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter.ingest.communication import UNKNOWN_GROUP
from dtscope_jupyter.ingest.operations import SENDS

if TYPE_CHECKING:
    from dtscope_jupyter.intervals import Ints

Bools: TypeAlias = npt.NDArray[np.bool_]

_EXACTNESS = ("profiler", "event", "host", "flight_recorder")
_STATES = ("completed", "started", "scheduled")
_NEAR_NS = 50_000_000
_NONE = -1
_VAGUE = frozenset(("unknown", "send_recv", *SENDS))


def without_duplicates(table: pa.Table) -> pa.Table:
    """`table` (collectives) with each collective of a rank once.

    Rows of different sources are one collective if rank, process group, sequence number and kind (collective, or
    send and receive) agree; where one of them has no sequence number (or no group), if they were enqueued next to
    each other in time, within 50 ms, and the operations agree. Rows of one source are one collective only if
    enqueued in the same nanosecond with the same sequence number, as in two dumps of one rank.
    """
    if _of_one_exact_source(table):
        return table
    rows = _Rows(table)
    into = np.full(len(table), _NONE)
    for rank in np.unique(rows.rank).tolist():
        _of_rank(rows, np.flatnonzero(rows.rank == rank), into)
    if (into == _NONE).all():
        return table
    return _merged(table, into)


def _of_one_exact_source(table: pa.Table) -> bool:
    """Whether there is nothing to compare: all rows of one source, of which dumps alone see a collective twice."""
    sources: set[str | None] = set()
    for chunk in table["source"].chunks:
        sources.update((chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk).to_pylist())
    return len(sources) < 2 and "flight_recorder" not in sources  # noqa: PLR2004


class _Rows:
    """The columns that tell whether two rows are one collective."""

    def __init__(self, table: pa.Table) -> None:
        self.rank = table["rank"].to_numpy()
        self.source = _codes(table["source"], _EXACTNESS)
        self.state = _codes(table["state"], _STATES)
        self.seq = _filled(table["seq"])
        self.enqueue = _filled(pc.coalesce(table["enqueue_ns"], table["start_ns"]))
        operation = _plain(table["operation"])
        group = _plain(table["process_group"])
        self.vague = pc.is_in(operation, pa.array(sorted(_VAGUE))).to_numpy()
        self.known = pc.not_equal(group, UNKNOWN_GROUP).to_numpy()
        self.is_send = pc.is_in(operation, pa.array(sorted(SENDS))).to_numpy()
        operation = pc.replace_substring(operation, "reduce_scatter", "all_reduce")  # gloo's dumps don't tell them apart
        self.operation = operation.dictionary_encode().combine_chunks().indices.to_numpy()
        self.group = group.dictionary_encode().combine_chunks().indices.to_numpy()
        self.flight_recorder = self.source == _EXACTNESS.index("flight_recorder")


def _of_rank(rows: _Rows, chosen: Ints, into: Ints) -> None:
    dumped = chosen[rows.flight_recorder[chosen]]
    _same_entries(rows, dumped, into)
    for exact in range(len(_EXACTNESS) - 1):
        for loose in range(exact + 1, len(_EXACTNESS)):
            a = chosen[(rows.source[chosen] == exact) & (into[chosen] == _NONE)]
            b = chosen[(rows.source[chosen] == loose) & (into[chosen] == _NONE)]
            if len(a) and len(b):
                _by_seq(rows, a, b, into)
                _by_time(rows, a, b, into)


def _same_entries(rows: _Rows, dumped: Ints, into: Ints) -> None:
    """Entries of several dumps of one rank: the one that got furthest stands."""
    keys = np.stack([column[dumped] for column in (rows.group, rows.seq, rows.is_send, rows.enqueue, rows.operation, rows.state)])
    order = np.lexsort(keys[::-1])
    dumped, keys = dumped[order], keys[:, order]
    same = (keys[:5, 1:] == keys[:5, :-1]).all(axis=0) & (keys[3, 1:] != _NONE)
    first = np.maximum.accumulate(np.where(np.append(False, same), 0, np.arange(len(dumped))))
    into[dumped[1:][same]] = dumped[first[1:][same]]


def _by_seq(rows: _Rows, a: Ints, b: Ints, into: Ints) -> None:
    a, b = (side[(rows.seq[side] != _NONE) & rows.known[side]] for side in (a, b))
    places = {key: row for row, key in zip(a.tolist(), _keys(rows, a), strict=True)}
    for row, key in zip(b.tolist(), _keys(rows, b), strict=True):
        into[row] = places.get(key, _NONE)


def _keys(rows: _Rows, chosen: Ints) -> list[tuple[int, int, bool, int]]:
    """Group, sequence number, kind, and the how manieth of these: coalesced operations share a number."""
    seen: dict[tuple[int, int, bool], int] = {}
    keys = []
    columns = (rows.group[chosen].tolist(), rows.seq[chosen].tolist(), rows.is_send[chosen].tolist())
    for key in zip(*columns, strict=True):
        seen[key] = seen.get(key, _NONE) + 1
        keys.append((*key, seen[key]))
    return keys


def _by_time(rows: _Rows, a: Ints, b: Ints, into: Ints) -> None:
    a = a[~np.isin(a, into[b])]
    b = b[into[b] == _NONE]
    for group in np.unique(rows.group[a]).tolist():
        of_a = a[rows.group[a] == group]
        anywhere = not rows.known[of_a[0]]
        of_b = b[anywhere | (rows.group[b] == group) | ~rows.known[b]]
        _nearest(rows, of_a, of_b[into[of_b] == _NONE], into)


def _nearest(rows: _Rows, a: Ints, b: Ints, into: Ints) -> None:
    """Pairs rows that are each other's nearest in time, then those between such pairs, in order, where as many are left."""
    a, b = (side[rows.enqueue[side] != _NONE] for side in (a, b))
    a, b = (side[np.argsort(rows.enqueue[side], kind="stable")] for side in (a, b))
    if not len(a) or not len(b):
        return
    of_a, of_b = _closest(rows.enqueue[a], rows.enqueue[b]), _closest(rows.enqueue[b], rows.enqueue[a])
    places = np.arange(len(a))
    mutual = (of_b[of_a] == places) & (np.abs(rows.enqueue[a] - rows.enqueue[b[of_a]]) <= _NEAR_NS)
    mutual &= _agree(rows, a, b[of_a])
    pairs = [(-1, -1), *zip(places[mutual].tolist(), of_a[mutual].tolist(), strict=True), (len(a), len(b))]
    for (a0, b0), (a1, b1) in itertools.pairwise(pairs):
        if a0 >= 0:
            into[b[b0]] = a[a0]
        inner = a0 >= 0 and a1 < len(a)
        if inner and a1 - a0 == b1 - b0 > 1 and _agree(rows, a[a0 + 1 : a1], b[b0 + 1 : b1]).all():
            into[b[b0 + 1 : b1]] = a[a0 + 1 : a1]


def _agree(rows: _Rows, a: Ints, b: Ints) -> Bools:
    agree: Bools = (rows.operation[a] == rows.operation[b]) | rows.vague[a] | rows.vague[b]
    return agree


def _closest(times: Ints, others: Ints) -> Ints:
    """For each of `times` the place of the nearest in `others`; both sorted."""
    right = np.clip(np.searchsorted(others, times), 0, len(others) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(others[left] - times) <= np.abs(others[right] - times), left, right)


def _merged(table: pa.Table, into: Ints) -> pa.Table:
    """Drops the rows that went into others, whose nulls they fill, the most exact first."""
    order = np.argsort(_codes(table["source"], _EXACTNESS), kind="stable")
    for row in order.tolist():
        while into[row] != _NONE and into[into[row]] != _NONE:
            into[row] = into[into[row]]
    left = order[into[order] != _NONE]
    while len(left):
        targets, first = np.unique(into[left], return_index=True)
        table = _filled_from(table, targets, left[first])
        left = np.delete(left, first)
    return table.filter(pa.array(into == _NONE))


def _filled_from(table: pa.Table, targets: Ints, donors: Ints) -> pa.Table:
    donor = np.full(len(table), _NONE)
    donor[targets] = donors
    indices = pa.array(donor, mask=donor == _NONE)
    vague = pc.equal(_plain(table["process_group"]), UNKNOWN_GROUP)
    return pa.table([_with_gaps_filled(table[name], indices, name, vague) for name in table.column_names], schema=table.schema)


def _with_gaps_filled(column: pa.ChunkedArray, donor: pa.Array, name: str, vague: pa.ChunkedArray) -> pa.ChunkedArray:
    if name == "process_group":
        column = pc.if_else(vague, pa.scalar(None, column.type), column)
        return pc.coalesce(column, column.take(donor), pa.scalar(UNKNOWN_GROUP, column.type))
    if name == "duration_ms" or column.null_count == 0:
        return column
    return pc.coalesce(column, column.take(donor))


def _filled(column: pa.ChunkedArray) -> Ints:
    values: Ints = column.fill_null(_NONE).to_numpy()
    return values


def _codes(column: pa.ChunkedArray, words: tuple[str, ...]) -> Any:
    return pc.fill_null(pc.index_in(_plain(column), pa.array(words)), len(words)).to_numpy()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.utf8()) if pa.types.is_dictionary(column.type) else column
