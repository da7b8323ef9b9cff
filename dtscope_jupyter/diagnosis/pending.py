# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives that began and did not end, and who waits for whom in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.analysis.pairing import P2P

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Bools, Ints

LEAST_S, TIMES_USUAL = 5.0, 10.0
"""A collective hangs when it is pending longer than 5 s and than ten times its usual time."""
_OPEN = ("scheduled", "started")


@dataclass(frozen=True)
class Pending:
    """The oldest open collective of a process group: who is in it since when, and who is missing.

    `missing` are members that have not enqueued it, `behind` members whose device is still at an earlier one,
    `unseen` members of whom nothing is known. `usual_ms` is the median of the group's completed ones, NaN if none.
    """

    process_group: str
    seq: int
    operation: str
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    behind: tuple[int, ...]
    unseen: tuple[int, ...]
    since_ns: int
    usual_ms: float
    line: str | None

    def overdue(self, now_ns: int) -> bool:
        """Whether it is pending for so long that this is a hang."""
        usual = self.usual_ms if np.isfinite(self.usual_ms) else 0.0
        return now_ns - self.since_ns > max(LEAST_S * 1e9, TIMES_USUAL * usual * 1e6)


@dataclass
class Group:
    """What is known of one process group: for each rank, its oldest open and its newest enqueued sequence number."""

    name: str
    members: tuple[int, ...]
    oldest: dict[int, int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)

    def behind(self, rank: int) -> set[int]:
        """Members whose oldest open collective is earlier than this rank's: their device is not there yet."""
        return {other for other, seq in self.oldest.items() if seq < self.oldest[rank]}

    def missing(self, rank: int, present: set[int]) -> set[int]:
        """Members that have data but never enqueued this rank's oldest open collective."""
        seq = self.oldest[rank]
        return {m for m in self.members if m != rank and m in present and m not in self.oldest and self.newest.get(m, seq - 1) < seq}


def groups(tables: Mapping[str, pa.Table], members: Mapping[str, tuple[int, ...]]) -> list[Group]:
    """Process groups with open collectives; sends and receives are left out."""
    table = tables["collectives"]
    is_open = open_rows(table) & ~columns.is_any(table, "operation", P2P)
    code, names = columns.codes(table, "process_group")
    rank, seq = columns.ints(table, "rank"), columns.ints(table, "seq")
    usable = (seq != NONE) & ~columns.is_any(table, "operation", P2P)
    told = _told(tables["groups"])
    found = []
    for number in np.unique(code[is_open & usable]).tolist():
        group = Group(names[number], members.get(names[number], ()))
        mine = np.flatnonzero(usable & (code == number))
        for row in mine[np.argsort(seq[mine], kind="stable")].tolist():
            group.newest[int(rank[row])] = int(seq[row])
            if is_open[row] and int(rank[row]) not in group.oldest:
                group.oldest[int(rank[row])], group.rows[int(rank[row])] = int(seq[row]), row
        for one in group.members:
            if (one, group.name) in told:
                group.newest[one] = max(told[one, group.name], group.newest.get(one, -1))
        found.append(group)
    return found


def point_to_point(tables: Mapping[str, pa.Table]) -> set[int]:
    """Ranks with an open send or receive: they wait for their peer."""
    table = tables["collectives"]
    chosen = open_rows(table) & columns.is_any(table, "operation", P2P)
    return set(columns.ints(table, "rank")[chosen].tolist())


def open_rows(table: pa.Table) -> Bools:
    """Rows that began and of which no row says that they ended."""
    state = columns.is_any(table, "state", _OPEN)
    ended = columns.is_any(table, "state", ("completed",)) | ((columns.ints(table, "end_ns") != NONE) & ~state)
    candidates = state & (columns.ints(table, "end_ns") == NONE)
    if not candidates.any() or not ended.any():
        return candidates
    key = np.stack([columns.codes(table, "process_group")[0], columns.ints(table, "seq"), columns.ints(table, "rank")])
    labels = np.unique(key, axis=1, return_inverse=True)[1].ravel()
    return candidates & ~np.isin(labels, labels[ended])


def pending(tables: Mapping[str, pa.Table], members: Mapping[str, tuple[int, ...]]) -> list[Pending]:
    """Each process group's oldest open collective, longest waiting first."""
    table = tables["collectives"]
    present = known_ranks(tables)
    enqueue, start = columns.ints(table, "enqueue_ns"), columns.ints(table, "start_ns")
    since = np.where(enqueue != NONE, enqueue, start)
    usual = _usual_ms(table)
    found = []
    for group in groups(tables, members):
        first = min(group.oldest, key=lambda rank: (-group.oldest[rank], since[group.rows[rank]]))
        row = group.rows[first]
        found.append(Pending(
            process_group=group.name,
            seq=group.oldest[first],
            operation=str(table["operation"][row]),
            ranks=tuple(sorted(rank for rank, seq in group.oldest.items() if seq == group.oldest[first])),
            missing=tuple(sorted(group.missing(first, present))),
            behind=tuple(sorted(group.behind(first))),
            unseen=tuple(sorted(set(group.members) - present)),
            since_ns=int(since[row]),
            usual_ms=usual.get(group.name, float("nan")),
            line=table["line"][row].as_py(),
        ))
    return sorted(found, key=lambda each: each.since_ns)


def known_ranks(tables: Mapping[str, pa.Table]) -> set[int]:
    """Ranks of which there is any row but notes."""
    return {rank for name, table in tables.items() if name != "notes" for rank in np.unique(columns.ints(table, "rank")).tolist()}


def _usual_ms(table: pa.Table) -> dict[str, float]:
    start, end = columns.ints(table, "start_ns"), columns.ints(table, "end_ns")
    told = columns.reals(table, "duration_ms")
    lasted = np.where((start != NONE) & (end != NONE), (end - start) / 1e6, told)
    code, names = columns.codes(table, "process_group")
    known = np.isfinite(lasted)
    return {name: float(np.median(lasted[known & (code == number)])) for number, name in enumerate(names) if (known & (code == number)).any()}


def _told(table: pa.Table) -> dict[tuple[int, str], int]:
    last: Ints = columns.ints(table, "last_enqueued")
    ranks, names = columns.ints(table, "rank").tolist(), table["process_group"].to_pylist()
    return {(rank, name): seq for rank, name, seq in zip(ranks, names, last.tolist(), strict=True) if seq != NONE}
