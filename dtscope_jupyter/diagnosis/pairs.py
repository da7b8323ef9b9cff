# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Paired collectives ordered by arrival: who came how late.

Lateness of a row = its start - the median start of the other ranks in the same collective (lower median of
the others, so that with two ranks it is the other's start).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.analysis.waits import Waits


@dataclass(frozen=True)
class Pairs:
    """Rows of collectives that two or more ranks were seen in, ordered by pair and, within it, by start.

    Times are ns on one clock. Pairs count from 0 to `count`; ranks and steps are places in `ranks` and `step_ids`.
    """

    waits: Waits
    ranks: Ints
    step_ids: Ints

    @property
    def count(self) -> int:
        """How many pairs."""
        return self.waits.count

    @cached_property
    def _order(self) -> Ints:
        return np.lexsort((self.waits.start, self.waits.collective))

    @cached_property
    def table(self) -> pa.Table:
        """The table's rows in this order."""
        return self.waits.rows.take(self._order)

    @cached_property
    def pair(self) -> Ints:
        """Number of the pair of each row."""
        return self.waits.collective[self._order]

    @cached_property
    def first(self) -> Ints:
        """Index of the first row of each pair."""
        return np.flatnonzero(np.diff(self.pair, prepend=-1))

    @cached_property
    def size(self) -> Ints:
        """Ranks of each pair."""
        return np.diff(np.append(self.first, len(self.pair)))

    @cached_property
    def start(self) -> Ints:
        """Start of each row."""
        return self.waits.start[self._order]

    @cached_property
    def end(self) -> Ints:
        """End of each row."""
        return self.waits.end[self._order]

    @cached_property
    def rank(self) -> Ints:
        """Place of each row's rank."""
        return position(self.ranks, columns.ints(self.table, "rank"))

    @cached_property
    def step(self) -> Ints:
        """Place of each row's step, -1 where it is none."""
        return position(self.step_ids, columns.ints(self.table, "step"))

    @cached_property
    def pair_step(self) -> Ints:
        """Place of each pair's step."""
        return self.step[self.first]

    @cached_property
    def last_start(self) -> Ints:
        """Start of the last rank, of each pair."""
        last: Ints = self.start[self.first + self.size - 1]
        return last

    @cached_property
    def transfer_ms(self) -> Reals:
        """Shortest duration over ranks, of each pair."""
        return self.waits.transfer[self._order][self.first] / 1e6

    @cached_property
    def wait_ms(self) -> Reals:
        """Latest start minus its own, of each row."""
        return self.waits.wait[self._order] / 1e6

    @cached_property
    def late_ms(self) -> Reals:
        """Lateness of each row; see the head of this file."""
        place = np.arange(len(self.pair)) - self.first[self.pair]
        reference = (self.size[self.pair] - 2) // 2
        reference = reference + (place <= reference)
        late: Reals = (self.start - self.start[self.first[self.pair] + reference]) / 1e6
        return late

    @cached_property
    def bytes(self) -> Reals:
        """Message size of each pair, NaN where unknown."""
        return columns.reals(self.table, "bytes")[self.first]

    def text(self, name: str) -> tuple[Ints, list[str]]:
        """A text column of each pair, as codes and names."""
        code, names = columns.codes(self.table, name)
        return code[self.first], names
