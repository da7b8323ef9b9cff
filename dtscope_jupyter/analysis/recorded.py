# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of which nothing but the rank's own figures is there: thinned ones, and those in which it only counted its collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis.activity import Activity, pair, source_codes
from dtscope_jupyter.analysis.columns import Ints, among, filtered, ints, reals
from dtscope_jupyter.analysis.lines import Groups

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dtscope_jupyter.analysis.columns import Bools

MS = 1e6
LENGTHS = ("comm", "compute", "overlap", "exposed")
_OF_PAIRS = LENGTHS[:3]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Rows of `steps`: `thinned` have all figures but their collectives no more, `estimated` only their exposed time."""

    thinned: pa.Table
    estimated: pa.Table
    _pairs: Ints

    @classmethod
    def of(cls, steps: pa.Table, found: Activity) -> Recorded:
        """The steps that the activity knows less of than the ranks themselves."""
        pairs = pair(ints(steps, "rank"), ints(steps, "step"))
        comm, exposed = reals(steps, "comm_ms"), reals(steps, "exposed_ms")
        whole = np.logical_and.reduce([~np.isnan(reals(steps, f"{name}_ms")) for name in _OF_PAIRS]) & (comm > 0)
        alone = np.isnan(comm) & ~np.isnan(exposed)
        if whole.any() or alone.any():
            talked = among(pairs, pair(found.comm.rank, found.comm.step))
            whole &= ~talked
            alone &= ~talked
        if alone.any():
            alone &= ~among(pairs, pair(found.compute.rank, found.compute.step))
        return cls(filtered(steps, whole), filtered(steps, alone), pairs[whole])

    def others(self, found: Activity) -> Activity:
        """The activity outside of the thinned steps."""
        if not len(self._pairs):
            return found
        return Activity(*(part.where(~among(pair(part.rank, part.step), self._pairs)) for part in (found.comm, found.compute)))

    def frames(self, inner: tuple[str, ...]) -> list[pd.DataFrame]:
        """A row a group: its keys, lengths in ns (NaN where unknown), its sources as bits, and whether it is an estimate."""
        parts = (self.thinned, False), (self.estimated, True)
        return [_sums(steps, inner, estimated=estimated) for steps, estimated in parts if len(steps)]


def _sums(steps: pa.Table, inner: tuple[str, ...], *, estimated: bool) -> pd.DataFrame:
    import pandas as pd

    groups = Groups.by(tuple(ints(steps, key) for key in inner))
    sums = {name: np.bincount(groups.of_row, reals(steps, f"{name}_ms") * MS, groups.count) for name in _OF_PAIRS}
    own = reals(steps, "exposed_ms") * MS
    sums["exposed"] = np.bincount(groups.of_row, own, groups.count) if estimated else sums["comm"] - sums["overlap"]
    marks = {"bits": bits_of(groups.of_row, source_codes(steps), groups.count), "estimated": np.full(groups.count, estimated)}
    return pd.DataFrame(dict(zip(inner, groups.keys, strict=True)) | sums | marks)


def bits_of(line: Ints, source: Ints, count: int) -> Ints:
    """The sources of each line as a set of bits."""
    bits = np.zeros(count, np.int64)
    np.bitwise_or.at(bits, line, 1 << source)
    return bits


def outdone(estimated: Bools, group: Ints) -> Bools:
    """Estimates in a group that has better than them: they are left out, so that all of its figures are of the same steps."""
    better = np.zeros(int(group.max(initial=-1)) + 1, bool)
    better[group[~estimated]] = True
    left: Bools = estimated & better[group]
    return left
