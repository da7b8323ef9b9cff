# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks' clocks compare, and times of several hosts on one clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, codes, ints, is_any
from dtscope_jupyter.analysis.lines import Groups
from dtscope_jupyter.analysis.pairing import Paired, paired

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dtscope_jupyter.analysis.activity import Tables

MS = 1e6
FEWEST = 5
"""Collectives that two hosts must have in common before their ends tell anything."""
UNSURE = 1_000_000
"""Ranks whose hosts are unknown are taken to be of one host unless their clocks differ by more than this many ns."""
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "all_gather_into_tensor", "reduce_scatter_tensor")


@dataclass(frozen=True, slots=True)
class Offsets:
    """What to add to the times of each of `ranks`, in ns; `applied` where it exceeds what is uncertain."""

    ranks: Ints
    host: list[str]
    offset: Ints
    uncertainty: Ints
    method: list[str]
    applied: Bools

    @property
    def worst(self) -> int:
        """The largest uncertainty of all, ns; 0 where all ranks share a clock."""
        return int(self.uncertainty.max(initial=0))

    def of(self, rank: Ints) -> Ints:
        """Correction of each row, given its rank; 0 for a rank of which no clock is known."""
        if not self.applied.any():
            return np.zeros(len(rank), np.int64)
        place = np.minimum(np.searchsorted(self.ranks, rank), len(self.ranks) - 1)
        correction: Ints = np.where(self.applied, self.offset, 0)[place] * (self.ranks[place] == rank)
        return correction


def clocks(tables: Tables) -> pd.DataFrame:
    """How far each rank's clock is off, a row a rank.

    Ranks of one boot share the monotonic clock: their times are rebased exactly, by the difference of their
    `monotonic_offset_ns`. Between hosts the offset is a measured round trip's (`clocks.offset_ns`), or else the median
    over collectives of (end on the lowest rank's host - end on this host), as collectives end together; its
    uncertainty is half the width of the middle 90 % of those differences. It is applied only where it exceeds its uncertainty.

    Returns:
        rank, host, offset_ms (to be added), uncertainty_ms, method, applied.
    """
    import pandas as pd

    found = offsets(tables, None)
    return pd.DataFrame({
        "rank": found.ranks, "host": found.host, "offset_ms": found.offset / MS, "uncertainty_ms": found.uncertainty / MS,
        "method": found.method, "applied": found.applied,
    })


def aligned(tables: Tables, both: Paired) -> tuple[Ints, Ints, int]:
    """Start and end of paired rows on the clock of the lowest rank, and the uncertainty in ns; `NONE` stays."""
    found = offsets(tables, both)
    start, end = ints(both.rows, "start_ns"), ints(both.rows, "end_ns")
    shift = found.of(ints(both.rows, "rank"))
    return np.where(start == NONE, NONE, start + shift), np.where(end == NONE, NONE, end + shift), found.worst


def offsets(tables: Tables, both: Paired | None) -> Offsets:
    """The correction of every rank that has rows."""
    ranks = np.unique(np.concatenate([ints(tables[name], "rank") for name in ("steps", "collectives", "spans", "clocks")]))
    latest = _Latest.of(tables["clocks"], ranks)
    offset, uncertainty = latest.rebase(), np.zeros(len(ranks), np.int64)
    applied, method = offset != 0, ["same_host" if known else "unknown" for known in latest.known]
    hosts = np.unique(latest.host, return_inverse=True)[1]
    if len(ranks) and (hosts != hosts[0]).any():
        _between(tables, both, latest, (ranks, hosts, offset, uncertainty, applied, method))
    return Offsets(ranks, latest.names(), offset, uncertainty, method, applied)


@dataclass(frozen=True, slots=True)
class _Latest:
    """Of each rank: a number for its host, and the newest row of `clocks`."""

    host: Ints
    labels: list[str]
    known: Bools
    monotonic: Ints
    measured: Ints
    width: Ints

    @classmethod
    def of(cls, table: pa.Table, ranks: Ints) -> _Latest:
        rank, time = ints(table, "rank"), ints(table, "time_ns")
        newest = _newest(rank, time)
        trip = np.where(is_any(table, "method", ("round_trip",)), ints(table, "offset_ns"), NONE)
        best = _newest(rank, -np.where(trip == NONE, 2**62, ints(table, "uncertainty_ns")))
        place = np.searchsorted(ranks, rank)
        boot, boots = codes(table, "boot_id")
        name, names = codes(table, "host")
        host = np.where(boot >= 0, boot, len(boots) + name)
        new = [np.full(len(ranks), empty, np.int64) for empty in (NONE, NONE, NONE, NONE)]
        of_host, monotonic, measured, width = new
        of_host[place[newest]], monotonic[place[newest]] = host[newest], ints(table, "monotonic_offset_ns")[newest]
        measured[place[best]], width[place[best]] = trip[best], ints(table, "uncertainty_ns")[best]
        known = of_host != NONE
        of_host[~known] = -1 - np.arange(len(ranks))[~known]
        labels = np.array([""] * len(ranks), dtype=object)
        labels[place[newest]] = np.array([*names, ""], dtype=object)[name[newest]]
        return cls(of_host, labels.tolist(), known, monotonic, measured, width)

    def names(self) -> list[str]:
        """Host names, empty where unknown."""
        return self.labels

    def trip(self, members: Ints, offset: Ints) -> tuple[int, int] | None:
        """Offset of a host's rebased times and its uncertainty, by the best round trip of its ranks; None without any."""
        trips = members[self.measured[members] != NONE]
        if not len(trips):
            return None
        best = trips[np.argmin(self.width[trips])]
        return int(self.measured[best] - offset[best]), max(int(self.width[best]), 0)

    def rebase(self) -> Ints:
        """What brings each rank's times to the monotonic clock as its host's first rank reads it."""
        usable = self.known & (self.monotonic != NONE)
        offset = np.zeros(len(self.host), np.int64)
        hosts, first, of_rank = np.unique(self.host[usable], return_index=True, return_inverse=True)
        if len(hosts):
            offset[usable] = self.monotonic[usable][first][of_rank] - self.monotonic[usable]
        return offset


def _newest(rank: Ints, value: Ints) -> Ints:
    """Row with the largest value of each rank."""
    order = np.lexsort((value, rank))
    last = np.ones(len(order), bool)
    last[:-1] = rank[order][1:] != rank[order][:-1]
    return order[last]


def _between(
    tables: Tables, both: Paired | None, latest: _Latest, columns: tuple[Ints, Ints, Ints, Ints, Bools, list[str]],
) -> None:
    ranks, hosts, offset, uncertainty, applied, method = columns
    estimate, width = _ends(both or paired(tables), ranks, hosts, offset)
    reference = latest.trip(np.flatnonzero(hosts == hosts[0]), offset) or (0, 0)
    for host in np.unique(hosts[hosts != hosts[0]]).tolist():
        members = np.flatnonzero(hosts == host)
        trip = latest.trip(members, offset)
        if trip is not None:
            value, unsure, how = trip[0] - reference[0], trip[1] + reference[1], "round_trip"
        elif width[host] != NONE:
            value, unsure, how = int(estimate[host]), int(width[host]), "collective_ends"
        else:
            continue
        named = bool(latest.known[members].all())
        if not named and abs(value) <= max(UNSURE, unsure):
            continue
        uncertainty[members] = unsure
        for member in members.tolist():
            method[member] = how
        if abs(value) > unsure:
            offset[members] += value
            applied[members] = True
        else:
            uncertainty[members] = max(abs(value), unsure)


def _ends(both: Paired, ranks: Ints, hosts: Ints, offset: Ints) -> tuple[Ints, Ints]:
    """Of each host: median difference of its ends of collectives from the first host's, and its uncertainty."""
    count = int(hosts.max()) + 1
    place = np.searchsorted(ranks, ints(both.rows, "rank"))
    end = ints(both.rows, "end_ns")
    keep = (end != NONE) & is_any(both.rows, "operation", _TOGETHER)
    end, host, collective = end[keep] + offset[place[keep]], hosts[place[keep]], both.of_row[keep]
    cells = Groups.by((collective, host))
    latest = np.full(cells.count, NONE)
    np.maximum.at(latest, cells.of_row, end)
    reference = np.full(both.count, NONE)
    first = cells.keys[1] == hosts[0]
    reference[cells.keys[0][first]] = latest[first]
    against = reference[cells.keys[0]]
    known = against != NONE
    return _spread(cells.keys[1][known], (against - latest)[known], count)


def _spread(host: Ints, difference: Ints, count: int) -> tuple[Ints, Ints]:
    """Median of each host's differences, and half the width of their middle 90 %; `NONE` where there are too few."""
    order = np.lexsort((difference, host))
    sizes = np.bincount(host, minlength=count)
    enough = np.flatnonzero(sizes >= FEWEST)
    first, estimate, width = (np.cumsum(sizes) - sizes)[enough], np.full(count, NONE), np.full(count, NONE)
    low, middle, high = (difference[order[first + np.round(share * (sizes[enough] - 1)).astype(np.int64)]] for share in (0.05, 0.5, 0.95))
    estimate[enough], width[enough] = middle, (high - low) // 2 + 1
    return estimate, width
