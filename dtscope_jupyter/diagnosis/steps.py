# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The table `steps` as matrices of rank x step."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, Reals

if TYPE_CHECKING:
    import pyarrow as pa

_Values = TypeVar("_Values", Ints, Reals)
_SETTLED = 4
"""With so many steps or more, a first one that is unlike the rest is warm-up."""
_WARM_UP = 1.5


@dataclass(frozen=True)
class Steps:
    """Whole steps only; `ids` (S,) and `ranks` (R,) ascend, matrices are (R, S) with NaN where a rank has no such step."""

    table: pa.Table
    ranks: Ints

    @cached_property
    def ids(self) -> Ints:
        """Step numbers that at least one rank has whole."""
        return np.unique(self._step[self._whole])

    @cached_property
    def start(self) -> Ints:
        """Start in ns (R, S), `NONE` where unknown."""
        return self._place(columns.ints(self.table, "start_ns"), np.full(self.shape, NONE, np.int64))

    @cached_property
    def end(self) -> Ints:
        """End in ns (R, S), `NONE` where unknown."""
        return self._place(columns.ints(self.table, "end_ns"), np.full(self.shape, NONE, np.int64))

    @cached_property
    def duration(self) -> Reals:
        """Wall time in ms (R, S)."""
        return np.where(self.start == NONE, np.nan, (self.end - self.start) / 1e6)

    @property
    def shape(self) -> tuple[int, int]:
        """Ranks and steps."""
        return len(self.ranks), len(self.ids)

    def column(self, name: str) -> Reals:
        """A number column (R, S), NaN where unknown."""
        values: Reals = np.full(self.shape, np.nan)
        return self._place(columns.reals(self.table, name), values)

    @cached_property
    def busy(self) -> Reals:
        """Compute in ms (R, S); where only the exposed communication was timed, the rest of the step, which is the same by definition."""
        compute = self.column("compute_ms")
        return np.where(np.isfinite(compute), compute, self.duration - self.column("exposed_ms"))

    @cached_property
    def usable(self) -> Bools:
        """Steps (S,) that most ranks have whole, undisturbed by us and no warm-up."""
        known = np.isfinite(self.duration)
        usable: Bools = known.sum(0) > len(self.ranks) / 2
        disturbed = self.column("disturbed") == 1
        if not (usable & ~disturbed.any(0)).any():
            return usable
        usable &= ~disturbed.any(0)
        typical = middle(self.duration, 0)
        first = int(np.argmax(usable))
        if usable.sum() >= _SETTLED and typical[first] > _WARM_UP * float(np.median(typical[usable])):
            usable[first] = False
        return usable

    @cached_property
    def typical_ms(self) -> float:
        """Median step time over usable steps, in ms; 0 where there is none."""
        chosen = self.duration[:, self.usable]
        return float(np.nanmedian(chosen)) if np.isfinite(chosen).any() else 0.0

    @cached_property
    def mean_ms(self) -> float:
        """Mean over the ranks of each one's mean step time, over all whole steps, in ms; NaN where there is none."""
        known = np.isfinite(self.duration)
        counts = known.sum(1)
        sums = np.where(known, self.duration, 0.0).sum(1)
        return float((sums[counts > 0] / counts[counts > 0]).mean()) if counts.any() else float("nan")

    @cached_property
    def profiled(self) -> bool:
        """Whether a profiler saw the steps, whose own cost then lengthens the host's part."""
        source, names = columns.codes(self.table, "source")
        return "profiler" in names and bool((source == names.index("profiler")).any())

    def index(self, step: Ints) -> Ints:
        """Column of each step number, -1 where it is none."""
        return position(self.ids, step)

    @cached_property
    def _step(self) -> Ints:
        return columns.ints(self.table, "step")

    @cached_property
    def _row(self) -> Ints:
        return position(self.ranks, columns.ints(self.table, "rank"))

    @cached_property
    def _whole(self) -> Bools:
        start, end = columns.ints(self.table, "start_ns"), columns.ints(self.table, "end_ns")
        whole: Bools = (start != NONE) & (end != NONE) & (end > start) & (self._row >= 0)
        return whole

    def _place(self, values: _Values, into: _Values) -> _Values:
        at = self.index(self._step)
        chosen = self._whole & (at >= 0)
        into[self._row[chosen], at[chosen]] = values[chosen]
        return into


def position(known: Ints, wanted: Ints) -> Ints:
    """Index of each wanted value in the ascending `known`, -1 where it is none."""
    if not len(known):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at, -1)


def middle(values: Reals, axis: int) -> Reals:
    """Median without NaN, and without a warning where all are NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=axis))
