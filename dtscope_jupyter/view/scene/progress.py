# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How far each rank came in its collectives: for runs without times, such as dumps of a job that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter.view.scene.select import where

if TYPE_CHECKING:
    from collections.abc import Mapping

ABSENT, WAITING, DONE, UNKNOWN = 0, 1, 2, 3
_BEFORE, _COUNTED, _AFTER = 10, 3, 14
_WAITS = ("scheduled", "started")


@dataclass(frozen=True, slots=True)
class Progress:
    """`states[i, j]` of rank `ranks[i]` at sequence number `seqs[j]`: ABSENT, WAITING, DONE or UNKNOWN (not in the dump)."""

    process_group: str
    description: str
    ranks: list[int]
    seqs: list[int]
    states: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Stuck:
    """What a finding says of a hang: from `seq` on the ranks `waiting` wait in the group, whatever their rows say by now."""

    process_group: str | None
    seq: int | None
    waiting: list[int]


def progress(tables: Mapping[str, pa.Table], stuck: Stuck | None = None) -> Progress | None:
    """The sequence numbers around the first in which a rank waits, in the stuck process group or the one where most ranks wait.

    Rows alone can mislead: when a stuck job is ended, the calls that waited return, with an error.
    """
    table = tables["collectives"].filter(pc.is_valid(tables["collectives"]["seq"]))
    if not len(table):
        return None
    names = table["process_group"].unique().to_pylist()
    chosen = stuck.process_group if stuck is not None and stuck.process_group in names else _busiest(table)
    assert chosen is not None, "a group of the rows"
    calls = where(table, process_group=chosen).select(["rank", "seq", "state"])
    known = where(tables["groups"], process_group=chosen)
    ranks = sorted({*calls["rank"].unique().to_pylist(), *known["rank"].to_pylist()})
    seqs = _around(calls, known)
    states = np.full((len(ranks), len(seqs)), UNKNOWN, np.int8)
    _as_counted(states, ranks, seqs, known)
    _as_seen(states, ranks, seqs, calls)
    if stuck is not None and stuck.seq is not None:
        held = np.ix_(np.isin(ranks, stuck.waiting), np.array(seqs) >= stuck.seq)
        states[held] = np.where(states[held] == DONE, WAITING, states[held])
    descriptions = [text for text in known["description"].to_pylist() if text]
    return Progress(chosen, descriptions[0] if descriptions else "", ranks, seqs, states)


def _busiest(table: pa.Table) -> str:
    """The group with most waiting calls, then with most ranks."""
    rows = table.select(["process_group", "rank"]).append_column("waits", _waits(table))
    counted = rows.group_by("process_group").aggregate([("waits", "sum"), ("rank", "count_distinct")]).to_pylist()
    return str(max(counted, key=lambda row: (row["waits_sum"], row["rank_count_distinct"], row["process_group"]))["process_group"])


def _waits(table: pa.Table) -> pa.ChunkedArray:
    return pc.cast(pc.is_in(table["state"].cast(pa.utf8()), pa.array(_WAITS)), pa.int64())


def _around(calls: pa.Table, known: pa.Table) -> list[int]:
    waiting = calls["seq"].filter(pc.equal(_waits(calls), 1))
    enqueued = known["last_enqueued"].drop_null().to_pylist()
    least, most = pc.min_max(calls["seq"]).as_py().values()
    last = max([most, *enqueued])
    first = pc.min(waiting).as_py() if len(waiting) else last
    begin = first - _COUNTED if enqueued else first
    return list(range(max(first - _BEFORE, min(least, begin), 0), min(last, first + _AFTER) + 1))


def _as_counted(states: npt.NDArray[np.int8], ranks: list[int], seqs: list[int], known: pa.Table) -> None:
    """What the group's own counters say, for collectives that the dump no longer or never held."""
    for row in known.to_pylist():
        place, enqueued, completed = ranks.index(row["rank"]), row["last_enqueued"], row["last_completed"]
        for j, seq in enumerate(seqs):
            if completed is not None and seq <= completed:
                states[place, j] = DONE
            elif enqueued is not None:
                states[place, j] = WAITING if seq <= enqueued else ABSENT


def _as_seen(states: npt.NDArray[np.int8], ranks: list[int], seqs: list[int], calls: pa.Table) -> None:
    """What the rows say; after its last one a rank has called nothing."""
    last = calls.group_by("rank").aggregate([("seq", "max")])
    ends = np.full(len(ranks), np.iinfo(np.int64).max)
    ends[np.searchsorted(ranks, last["rank"].to_numpy())] = last["seq_max"].to_numpy()
    states[(np.array(seqs) > ends[:, None]) & (states == UNKNOWN)] = ABSENT
    shown = calls.filter(pc.is_in(calls["seq"], pa.array(seqs, pa.int64())))
    at = np.searchsorted(ranks, shown["rank"].to_numpy()), shown["seq"].to_numpy() - seqs[0]
    states[at] = np.where(_waits(shown).to_numpy() == 1, WAITING, DONE)
