# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What every rule looks at, made once from the tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import clocks, columns, waits
from dtscope_jupyter.diagnosis.activity import Activity
from dtscope_jupyter.diagnosis.pairs import Pairs
from dtscope_jupyter.diagnosis.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    import networkx as nx
    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Ints, Reals

_MOST_STEPS = 0.5


@dataclass(frozen=True)
class Evidence:
    """The tables, with what all rules share computed on demand."""

    tables: Mapping[str, pa.Table]
    topology: nx.MultiGraph[str] | None = None
    live: bool = False

    @cached_property
    def ranks(self) -> Ints:
        """Ranks of which there is any row but notes, ascending."""
        found = np.concatenate([np.unique(columns.ints(self.tables[name], "rank")) for name in self.tables if name != "notes"])
        return np.unique(found[found >= 0])

    @cached_property
    def members(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each process group as its members tell, else as its collectives show."""
        table = self.tables["groups"]
        told: dict[str, set[int]] = {}
        for name, listed in zip(table["process_group"].to_pylist(), table["ranks"].to_pylist(), strict=True):
            told.setdefault(name, set()).update(listed or ())
        shown, names = columns.codes(self.tables["collectives"], "process_group")
        ranks = columns.ints(self.tables["collectives"], "rank")
        for code, name in enumerate(names):
            if not told.get(name):
                told[name] = set(np.unique(ranks[shown == code]).tolist())
        return {name: tuple(sorted(ranks)) for name, ranks in told.items()}

    @cached_property
    def expected_ranks(self) -> set[int]:
        """Every rank that a process group names or a row is of."""
        return {rank for ranks in self.members.values() for rank in ranks} | set(self.ranks.tolist())

    @cached_property
    def steps(self) -> Steps:
        """Whole steps as matrices."""
        return Steps(self.tables["steps"], self.ranks)

    @cached_property
    def shift(self) -> Ints:
        """What brings each rank's times to one clock, ns."""
        return clocks.offsets(self.tables, None).of(self.ranks)

    @cached_property
    def waits(self) -> waits.Waits:
        """Collectives paired across ranks, on one clock."""
        return waits.timed(self.tables)

    @cached_property
    def pairs(self) -> Pairs:
        """The same, by arrival."""
        return Pairs(self.waits, self.ranks, self.steps.ids)

    @cached_property
    def activity(self) -> Activity:
        """What ranks did when; without the kernels of a profiler that saw less than half of the steps that count, as a live window."""
        spans = self.tables["spans"]
        seen = np.isin(np.arange(len(self.steps.ids)), self.steps.index(columns.ints(spans, "step")))
        usable = self.steps.usable
        if self.profile.device and usable.any() and seen[usable].mean() < _MOST_STEPS:
            return Activity({**self.tables, "spans": spans.slice(0, 0)}, self.ranks, self.shift, self.steps)
        return self.profile

    @cached_property
    def profile(self) -> Activity:
        """The same with whatever a profiler saw."""
        return Activity(self.tables, self.ranks, self.shift, self.steps)

    @cached_property
    def on_device(self) -> bool:
        """Whether the ranks compute on devices, which run behind their hosts."""
        names = self.tables["devices"]["device"].unique().to_pylist()
        return self.profile.device or any(name and not name.startswith("cpu") for name in names)

    @cached_property
    def exposed_transfer(self) -> Reals:
        """Exposed communication that no rank's wait explains (S,), ms: the least over ranks."""
        exposed = self.steps.column("exposed_ms")
        known = np.isfinite(exposed)
        return np.where(known.any(0), np.min(np.where(known, exposed, np.inf), axis=0, initial=np.inf), np.nan)

    def step_numbers(self, chosen: Ints) -> tuple[int, ...]:
        """Step numbers of columns of the step matrix."""
        return tuple(self.steps.ids[chosen].tolist())

    def name(self, rank_rows: Ints) -> tuple[int, ...]:
        """Ranks of rows of the rank matrices."""
        return tuple(self.ranks[rank_rows].tolist())

    def step_sum(self, values: Reals, pairs_step: Ints) -> Reals:
        """Sum a step (S,) of a number a pair."""
        chosen = pairs_step >= 0
        return np.bincount(pairs_step[chosen], weights=values[chosen], minlength=len(self.steps.ids)).astype(np.float64)
