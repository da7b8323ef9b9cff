# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How far each rank came in its collectives: for runs without times, such as dumps of a job that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from dtscope_jupyter.view.scene.select import where

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

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


def progress(tables: Mapping[str, pa.Table], group: str | None = None) -> Progress | None:
    """The sequence numbers around the first in which a rank waits, in that process group or the one where most ranks wait."""
    columns = ["rank", "process_group", "seq", "state"]
    calls = tables["collectives"].filter(pc.is_valid(tables["collectives"]["seq"])).select(columns).to_pandas()
    if not len(calls):
        return None
    calls["waits"] = calls["state"].isin(_WAITS)
    chosen = group if group in set(calls["process_group"]) else _busiest(calls)
    assert chosen is not None, "a group of the rows"
    calls = calls[calls["process_group"] == chosen]
    known = where(tables["groups"], process_group=chosen)
    ranks = sorted({*calls["rank"].astype(int), *known["rank"].to_pylist()})
    seqs = _around(calls, known)
    states = np.full((len(ranks), len(seqs)), UNKNOWN, np.int8)
    _as_counted(states, ranks, seqs, known)
    _as_seen(states, ranks, seqs, calls)
    descriptions = [text for text in known["description"].to_pylist() if text]
    return Progress(chosen, descriptions[0] if descriptions else "", ranks, seqs, states)


def _busiest(calls: pd.DataFrame) -> str:
    by_group = calls.groupby("process_group", observed=True)
    waiting, members = by_group["waits"].sum().sort_index(), by_group["rank"].nunique().sort_index()
    return str(max(waiting.index, key=lambda name: (waiting[name], members[name])))


def _around(calls: pd.DataFrame, known: pa.Table) -> list[int]:
    waiting = calls.loc[calls["waits"], "seq"]
    enqueued = known["last_enqueued"].drop_null().to_pylist()
    last = max([int(calls["seq"].max()), *enqueued])
    first = int(waiting.min()) if len(waiting) else last
    begin = first - _COUNTED if len(enqueued) else first
    return list(range(max(first - _BEFORE, min(int(calls["seq"].min()), begin), 0), min(last, first + _AFTER) + 1))


def _as_counted(states: npt.NDArray[np.int8], ranks: list[int], seqs: list[int], known: pa.Table) -> None:
    """What the group's own counters say, for collectives that the dump no longer or never held."""
    for row in known.to_pylist():
        place, enqueued, completed = ranks.index(row["rank"]), row["last_enqueued"], row["last_completed"]
        for j, seq in enumerate(seqs):
            if completed is not None and seq <= completed:
                states[place, j] = DONE
            elif enqueued is not None:
                states[place, j] = WAITING if seq <= enqueued else ABSENT


def _as_seen(states: npt.NDArray[np.int8], ranks: list[int], seqs: list[int], calls: pd.DataFrame) -> None:
    row, column = {rank: i for i, rank in enumerate(ranks)}, {seq: j for j, seq in enumerate(seqs)}
    for rank, own in calls.groupby("rank"):
        place, last = row[int(str(rank))], own["seq"].max()
        later = (np.array(seqs) > last) & (states[place] == UNKNOWN)
        states[place, later] = ABSENT
        shown = own[own["seq"].isin(seqs)]
        states[place, shown["seq"].map(column).to_numpy(int)] = np.where(shown["waits"], WAITING, DONE)
