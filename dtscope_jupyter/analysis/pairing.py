# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which rows of different ranks are one collective.

Rows are paired by process group and sequence number; where a group's rows on any rank lack numbers, by their
order on each rank, and then only if every rank has equally many: a lack is reported, never guessed at.
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
    numbered, complaints = _by_order(group, names, rank, seq, ints(rows, "enqueue_ns"), ints(rows, "start_ns"))
    keep = _best(group, numbered, rank, source_codes(rows)) & (numbered != NONE)
    rest = np.concatenate((np.flatnonzero(alone), index[numbered == NONE]))
    if not keep.all():
        rows, group, numbered = rows.filter(pa.array(keep)), group[keep], numbered[keep]
    collective = Groups.by((group, numbered))
    return Paired(rows, index[keep], rest, collective.of_row, collective.count, complaints)


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


def _by_order(group: Ints, names: list[str], rank: Ints, seq: Ints, enqueue: Ints, start: Ints) -> tuple[Ints, list[str]]:
    """Sequence numbers, counted by time in the groups that lack them; `NONE` where ranks disagree on how many."""
    lacking = np.unique(group[seq == NONE])
    if not len(lacking):
        return seq, []
    mine = np.isin(group, lacking)
    time = np.where(enqueue[mine] != NONE, enqueue[mine], start[mine])
    order = np.lexsort((time, rank[mine], group[mine]))
    pairs = Groups.by((group[mine], rank[mine]))
    counts = np.bincount(pairs.of_row, minlength=pairs.count)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
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


def _best(group: Ints, seq: Ints, rank: Ints, source: Ints) -> Bools:
    """Marks, of the rows of one rank for one collective, the first of the most exact source."""
    order = np.lexsort((source, rank, seq, group))
    first = np.ones(len(order), bool)
    same = [column[order][1:] == column[order][:-1] for column in (group, seq, rank)]
    first[1:] = ~np.logical_and.reduce(same)
    marked = np.empty(len(order), bool)
    marked[order] = first
    return marked
