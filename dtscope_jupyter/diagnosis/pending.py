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
from dtscope_jupyter.vanished import NAME as VANISHED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Bools, Ints

LEAST_S, TIMES_USUAL = 5.0, 10.0
"""A collective hangs when it is pending longer than 5 s and than ten times its usual time."""
INTERRUPTED, STOPPED = "KeyboardInterrupt", "finish"
"""Names of notes of kind exit that tell no fault: the user ended the rank; it stopped recording before its process ended."""
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
    collective = (columns.ints(table, "seq") != NONE) & ~columns.is_any(table, "operation", P2P)
    is_open = (open_rows(table) | _abandoned(tables, members)) & collective
    code, names = columns.codes(table, "process_group")
    rank, seq = columns.ints(table, "rank"), columns.ints(table, "seq")
    told = _told(tables["groups"])
    found = []
    for number in np.unique(code[is_open]).tolist():
        group = Group(names[number], members.get(names[number], ()))
        mine = np.flatnonzero(collective & (code == number))
        for row in mine[np.argsort(seq[mine], kind="stable")].tolist():
            group.newest[int(rank[row])] = int(seq[row])
            if is_open[row] and int(rank[row]) not in group.oldest:
                group.oldest[int(rank[row])], group.rows[int(rank[row])] = int(seq[row]), row
        for one in group.members:
            if (one, group.name) in told:
                group.newest[one] = max(told[one, group.name], group.newest.get(one, -1))
        found.append(group)
    return found


def _abandoned(tables: Mapping[str, pa.Table], members: Mapping[str, tuple[int, ...]]) -> Bools:
    """Rows of collectives that ended, by an error, although a member never came: after long waiting, or as that member died.

    The last rows of a rank that was killed can be lost, so that a lack alone shows nothing.
    """
    table = tables["collectives"]
    code, names = columns.codes(table, "process_group")
    seq, rank = columns.ints(table, "seq"), columns.ints(table, "rank")
    recorded = columns.is_any(table, "source", ("event", "host")) & (seq != NONE)
    lasted = (columns.ints(table, "end_ns") - columns.ints(table, "start_ns")) / 1e6
    timed = recorded & (columns.ints(table, "end_ns") != NONE) & (columns.ints(table, "start_ns") != NONE)
    died, done, usual = exits(tables), finished_steps(tables), _usual_ms(table)
    found = np.zeros(len(table), dtype=bool)
    rows, shown = np.flatnonzero(recorded & (code >= 0) & (rank >= 0)), int(rank.max(initial=0)) + 1
    newest = np.full((len(names), shown), -1)
    np.maximum.at(newest, (code[rows], rank[rows]), seq[rows])
    for number, name in enumerate(names):
        last = {one: int(newest[number, one]) if one < shown else -1 for one in members.get(name, ())}
        if not last or min(last.values()) == max(last.values()):
            continue
        mine = recorded & (code == number)
        final = mine & (seq == max(last.values()))
        # A rank that finished the step had the collective too, and did not record it: ranks need not sample the same steps.
        step = int(columns.ints(table, "step")[final].max())
        absent = [one for one, at in last.items() if at < max(last.values()) and (step == NONE or done.get(one, NONE) < step)]
        dead = any(died.get(one) for one in absent)
        long = timed & mine & (seq > min(last.values())) & (lasted > max(LEAST_S * 1e3, TIMES_USUAL * usual.get(name, 0.0)))
        found |= long | (final & dead)
    return found


def finished_steps(tables: Mapping[str, pa.Table]) -> dict[int, int]:
    """The last step that each rank surely finished: its optimizer did, or another step followed."""
    table = tables["steps"]
    ranks, step = columns.ints(table, "rank"), columns.ints(table, "step")
    whole = np.where(columns.ints(table, "optimizer_end_ns") != NONE, step, step - 1)
    return {int(one): int(whole[ranks == one].max()) for one in np.unique(ranks).tolist()}


def exits(tables: Mapping[str, pa.Table]) -> dict[int, float]:
    """Exit code of each rank of which a note tells it; of a rank that somebody ended, or that is gone without a word, it is not known."""
    notes = tables["notes"]
    chosen = _told_exits(notes)
    ranks, codes = columns.ints(notes, "rank")[chosen], columns.reals(notes, "value")[chosen]
    return {int(rank): float(code) if np.isfinite(code) else 1.0 for rank, code in zip(ranks, codes, strict=True)}


def exit_times(tables: Mapping[str, pa.Table]) -> dict[int, int]:
    """When each rank of which a note tells the exit ended, ns; only those of which the time is known."""
    notes = tables["notes"]
    time = columns.ints(notes, "time_ns")
    chosen = _told_exits(notes) & (time != NONE)
    return dict(zip(columns.ints(notes, "rank")[chosen].tolist(), time[chosen].tolist(), strict=True))


def vanished(tables: Mapping[str, pa.Table]) -> set[int]:
    """Ranks whose processes are gone without a word."""
    notes = tables["notes"]
    chosen = columns.is_any(notes, "kind", ("exit",)) & columns.is_any(notes, "name", (VANISHED,))
    return set(columns.ints(notes, "rank")[chosen].tolist())


def _told_exits(notes: pa.Table) -> Bools:
    told: Bools = columns.is_any(notes, "kind", ("exit",)) & ~columns.is_any(notes, "name", (INTERRUPTED, STOPPED, VANISHED))
    return told


def point_to_point(tables: Mapping[str, pa.Table]) -> set[int]:
    """Ranks with an open send or receive: they wait for their peer."""
    table = tables["collectives"]
    chosen = open_rows(table) & columns.is_any(table, "operation", P2P)
    return set(columns.ints(table, "rank")[chosen].tolist())


def open_rows(table: pa.Table) -> Bools:
    """Rows that began and of which no row says that they ended."""
    state = columns.is_any(table, "state", _OPEN)
    ended = columns.is_any(table, "state", ("completed",)) | ((columns.ints(table, "end_ns") != NONE) & ~state)
    candidates: Bools = state & (columns.ints(table, "end_ns") == NONE)
    if not candidates.any() or not ended.any():
        return candidates
    key = np.stack([columns.codes(table, "process_group")[0], columns.ints(table, "seq"), columns.ints(table, "rank")])
    labels = np.unique(key, axis=1, return_inverse=True)[1].ravel()
    still: Bools = candidates & ~np.isin(labels, labels[ended])
    return still


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
        found.append(
            Pending(
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
            )
        )
    return sorted(found, key=lambda each: each.since_ns)


def known_ranks(tables: Mapping[str, pa.Table]) -> set[int]:
    """Ranks of which there is any row but notes, and those whose exit is known."""
    shown = {rank for name, table in tables.items() if name != "notes" for rank in np.unique(columns.ints(table, "rank")).tolist()}
    return shown | set(exits(tables))


def _usual_ms(table: pa.Table) -> dict[str, float]:
    start, end = columns.ints(table, "start_ns"), columns.ints(table, "end_ns")
    told = columns.reals(table, "duration_ms")
    lasted = np.where((start != NONE) & (end != NONE), (end - start) / 1e6, told)
    code, names = columns.codes(table, "process_group")
    known = np.isfinite(lasted)
    return {
        name: float(np.median(lasted[known & (code == number)])) for number, name in enumerate(names) if (known & (code == number)).any()
    }


def _told(table: pa.Table) -> dict[tuple[int, str], int]:
    last: Ints = columns.ints(table, "last_enqueued")
    ranks, names = columns.ints(table, "rank").tolist(), table["process_group"].to_pylist()
    return {(rank, name): seq for rank, name, seq in zip(ranks, names, last.tolist(), strict=True) if seq != NONE}
