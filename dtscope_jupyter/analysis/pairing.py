# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which rows of different ranks are one collective.

Rows are paired by process group and sequence number (of groups that are made anew and count from the start again, the second
row of a number with the second elsewhere); where a group's rows on any rank lack numbers, by their order on each rank, and
then only if every rank has equally many: a lack is reported, never guessed at.
Sends and receives pair with nobody here. Of two rows of one rank for one collective the more exact source counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis.activity import source_codes
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, codes, ints, is_any
from dtscope_jupyter.analysis.lines import Groups

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.activity import Tables

P2P = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "sendrecv", "send_recv", "receive")


@dataclass(frozen=True, slots=True)
class Paired:
    """Rows of `collectives` that belong to one collective each.

    `rows` is the table, one row a rank and collective, and `index` their places in `collectives`; `of_row` is the
    collective of each row, counted from 0; `rest` has the places of rows that pair with nobody, as sends;
    `unpaired` says in words what could not be paired and why.
    """

    rows: pa.Table
    index: Ints
    rest: Ints
    of_row: Ints
    count: int
    unpaired: list[str]


def paired(tables: Tables) -> Paired:
    """Pairs the collectives of all ranks."""
    table = tables["collectives"]
    alone = is_any(table, "operation", P2P)
    index = np.flatnonzero(~alone)
    rows = table.take(pa.array(index)) if alone.any() else table
    group, names = identities(rows, tables["groups"])
    seq, rank = ints(rows, "seq"), ints(rows, "rank")
    numbered, complaints = _by_order(group, names, rank, seq, _times(rows))
    source, time = source_codes(rows), _times(rows)
    again = _occurrence((group, numbered, rank, source), time)
    keep = _best((group, numbered, again, rank), source) & (numbered != NONE)
    rest = np.concatenate((np.flatnonzero(alone), index[numbered == NONE]))
    if not keep.all():
        rows, group, numbered, again = rows.filter(pa.array(keep)), group[keep], numbered[keep], again[keep]
    collective = Groups.by((group, numbered, again))
    return Paired(rows, index[keep], rest, collective.of_row, collective.count, complaints)


def _times(rows: pa.Table) -> Ints:
    enqueue = ints(rows, "enqueue_ns")
    return np.where(enqueue != NONE, enqueue, ints(rows, "start_ns"))


def _occurrence(keys: tuple[Ints, ...], time: Ints) -> Ints:
    """The how manieth of its keys each row is, by time: a group made anew counts from the start, coalesced calls share a number."""
    order = np.lexsort((time, *keys))
    changes = np.ones(len(order), bool)
    changes[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    places = np.arange(len(order))
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(changes, places, 0)) if len(order) else places
    return found


def identities(rows: pa.Table, groups: pa.Table) -> tuple[Ints, list[str]]:
    """A process group's identity for each row: groups of one name but other members are others."""
    code, names = codes(rows, "process_group")
    rank = ints(rows, "rank")
    members = dict(zip(zip(*_columns(groups), strict=True), groups.column("ranks").to_pylist(), strict=True))
    several = _ambiguous(members)
    if not several:
        return code, names
    identity, labels = code.copy(), list(names)
    known: dict[tuple[object, ...], int] = {}
    for name in several:
        if name not in names:
            continue
        for (of_rank, of_name), ranks in members.items():
            if of_name == name and ranks:
                label = known.setdefault((name, tuple(ranks)), len(labels))
                labels += [f"{name} of ranks {ranks}"] if label == len(labels) else []
                identity[(code == names.index(name)) & (rank == of_rank)] = label
    return identity, labels


def _columns(groups: pa.Table) -> list[list[object]]:
    return [groups.column(name).to_pylist() for name in ("rank", "process_group")]


def _ambiguous(members: dict[tuple[object, ...], list[int]]) -> list[object]:
    sets: dict[object, set[tuple[int, ...]]] = {}
    for (_, name), ranks in members.items():
        if ranks:
            sets.setdefault(name, set()).add(tuple(ranks))
    return [name for name, distinct in sets.items() if len(distinct) > 1]


def _by_order(group: Ints, names: list[str], rank: Ints, seq: Ints, times: Ints) -> tuple[Ints, list[str]]:
    """Sequence numbers, counted by time in the groups that lack them; `NONE` where ranks disagree on how many."""
    lacking = np.unique(group[seq == NONE])
    if not len(lacking):
        return seq, []
    mine = np.isin(group, lacking)
    pairs = Groups.by((group[mine], rank[mine]))
    counts = np.bincount(pairs.of_row, minlength=pairs.count)
    place = _occurrence((rank[mine], group[mine]), times[mine])
    complaints = []
    numbered = seq.copy()
    for one in lacking.tolist():
        of_ranks = pairs.keys[0] == one
        if len(set(counts[of_ranks].tolist())) > 1:
            each = ", ".join(f"rank {r}: {n}" for r, n in zip(pairs.keys[1][of_ranks], counts[of_ranks], strict=True))
            complaints.append(f"process group {names[one]}: no sequence numbers and unequal counts ({each}), not paired")
            place[group[mine] == one] = NONE
    numbered[mine] = place
    return numbered, complaints


def _best(keys: tuple[Ints, ...], source: Ints) -> Bools:
    """Marks, of the rows of one rank for one collective, the first of the most exact source."""
    order = np.lexsort((source, *keys))
    first = np.ones(len(order), bool)
    first[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    marked = np.empty(len(order), bool)
    marked[order] = first
    return marked
