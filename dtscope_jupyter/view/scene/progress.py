# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How far each rank came in its collectives: for runs without times, such as dumps of a job that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

ABSENT, WAITING, DONE, OUTSIDE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Progress:
    """`states[i, j]` of rank `ranks[i]` at sequence number `seqs[j]`: ABSENT, WAITING, DONE or OUTSIDE (no member, or forgotten)."""

    process_group: str
    ranks: list[int]
    seqs: list[int]
    states: npt.NDArray[np.int8]
    operations: dict[int, str]

    @property
    def stuck(self) -> bool:
        """Some rank waits in a collective."""
        return bool((self.states == WAITING).any())


def progress(tables: Mapping[str, pa.Table], last: int = 24) -> Progress | None:
    """The last sequence numbers of the process group in which most ranks wait; None without any."""
    columns = ["rank", "process_group", "seq", "operation", "state"]
    calls = tables["collectives"].select(columns).to_pandas().dropna(subset=["seq"])
    if not len(calls):
        return None
    calls["waits"] = calls["state"].isin(["scheduled", "started"])
    waiting = calls.groupby("process_group", observed=True)["waits"].sum().sort_index()
    members = calls.groupby("process_group", observed=True)["rank"].nunique().sort_index()
    group = max(waiting.index, key=lambda name: (waiting[name], members[name]))
    return _of_group(str(group), calls[calls["process_group"] == group], last)


def _of_group(group: str, calls: pd.DataFrame, last: int) -> Progress:
    ranks = sorted(int(r) for r in calls["rank"].unique())
    seqs = sorted(int(s) for s in calls["seq"].unique())[-last:]
    shown = calls[calls["seq"] >= seqs[0]]
    states = np.full((len(ranks), len(seqs)), ABSENT, np.int8)
    place = {seq: i for i, seq in enumerate(seqs)}
    row = {rank: i for i, rank in enumerate(ranks)}
    for rank in ranks:
        states[row[rank], : np.searchsorted(seqs, calls.loc[calls["rank"] == rank, "seq"].min())] = OUTSIDE
    at = (shown["rank"].map(row).to_numpy(int), shown["seq"].map(place).to_numpy(int))
    states[at] = np.where(shown["waits"], WAITING, DONE)
    operations = dict(zip(shown["seq"].astype(int), shown["operation"].astype(str), strict=True))
    return Progress(group, ranks, seqs, states, operations)
