# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Contention by an outsider on the link: collectives that are slow while the link carries what is not ours.

Between two samples of a host's link it carries bytes; the run's own collectives of that time move some of them. What a byte of ours
costs on the link (the algorithm's factor, loopback counted twice) is learnt from the samples in which transfers are as fast
as ever. What is beyond that is somebody else's. Without samples of the link nobody is accused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.diagnosis import links
from dtscope_jupyter.diagnosis.finding import Finding, megabytes, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

_SLOWER, _FREE = 1.5, 1.2
"""Samples with transfers half as slow again as usual are slow; those within a fifth of it show what is usual."""
_FOREIGN = 0.5
"""An outsider moves at least half as much as we do, more than twice what is ever beyond ours in free samples."""
_FEWEST, _SHARE = 3, 0.02
_QUICK = 0.1
ADVICE = "Find what else uses this link (another job, a copy, a checkpoint, storage) and move it off, in time or to another interface."


@dataclass(frozen=True)
class _Samples:
    """Of each sample of one rank's link: its time [start, end] in ns, bytes it carried, bytes of ours, how slow ours were."""

    start: Ints
    end: Ints
    carried: Reals
    own: Reals
    ratio: Reals


def find(evidence: Evidence) -> Finding | None:
    """At most one finding: the link with most of what is not ours."""
    recorded = np.unique(evidence.pairs.pair_step[evidence.pairs.pair_step >= 0])
    if len(recorded) < evidence.steps.usable.sum() / 2 or not len(recorded):
        return None
    table = evidence.tables["devices"]
    counted = np.isfinite(columns.reals(table, "link_rx_bytes_s"))
    device = columns.codes(table, "device")[0]
    known = np.unique(np.stack((columns.ints(table, "rank"), device))[:, counted], axis=1).T
    slowness = _slowness(evidence) if len(known) else np.zeros(0)
    found = [
        finding
        for rank, one in known.tolist()
        if (finding := _of_link(evidence, int(rank), counted & (device == one) & (columns.ints(table, "rank") == rank), slowness))
    ]
    return max(found, key=lambda each: each.cost_ms) if found else None


def _of_link(evidence: Evidence, rank: int, mine: Bools, slowness: Reals) -> Finding | None:
    samples = _samples(evidence, rank, mine, slowness)
    if samples is None:
        return None
    free, slow = samples.ratio < _FREE, samples.ratio > _SLOWER
    if free.sum() < _FEWEST or slow.sum() < _FEWEST:
        return None
    factor = float(np.median(samples.carried[free] / samples.own[free]))
    foreign = samples.carried - factor * samples.own
    usual = float(np.quantile(np.abs(foreign[free]) / (samples.end - samples.start)[free], 0.9))
    rate = foreign / (samples.end - samples.start)
    guilty = slow & (foreign > _FOREIGN * factor * samples.own) & (rate > 2 * usual)
    if guilty.sum() < max(_FEWEST, slow.sum() / 2):
        return None
    return _finding(evidence, rank, samples, guilty, rate, slowness)


def _slowness(evidence: Evidence) -> Reals:
    """Of each pair, its time over the usual time (a low quantile) of its group, operation and size; NaN where sizes are unknown."""
    transfers = links.Transfers(evidence)
    known = np.isfinite(transfers.wire_bytes) & (transfers.wire_bytes > 0) & transfers.whole & (evidence.pairs.pair_step >= 0)
    keys = np.stack((transfers.group[0], transfers.operation[0], np.nan_to_num(transfers.wire_bytes).astype(np.int64)))
    key = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    slowness = np.full(len(known), np.nan)
    for one in np.unique(key[known]).tolist():
        mine = known & (key == one)
        slowness[mine] = transfers.ms[mine] / max(float(np.quantile(transfers.ms[mine], _QUICK)), 1e-6)
    return slowness


def _samples(evidence: Evidence, rank: int, mine: Bools, slowness: Reals) -> _Samples | None:
    table, pairs = evidence.tables["devices"], evidence.pairs
    row = position(evidence.ranks, np.array([rank]))[0]
    times = columns.ints(table, "time_ns")[mine] + evidence.shift[row]
    order = np.argsort(times, kind="stable")
    received, sent = (columns.reals(table, f"link_{way}_bytes_s")[mine][order] for way in ("rx", "tx"))
    times, rates = times[order], np.fmax(received, sent)
    timed = np.flatnonzero(np.isfinite(slowness))
    if len(times) < 2 * _FEWEST or not len(timed):
        return None
    start, end = times[:-1], times[1:]
    begin, done = pairs.last_start[timed], np.maximum.reduceat(pairs.end, pairs.first)[timed]
    own, ratio = np.zeros(len(start)), np.full(len(start), np.nan)
    wire = links.Transfers(evidence).wire_bytes[timed]
    for number, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        inside = np.clip(np.minimum(done, high) - np.maximum(begin, low), 0, None) / np.maximum(done - begin, 1)
        own[number] = float((inside * wire).sum())
        ratio[number] = float(np.median(slowness[timed][inside > 0])) if (inside > 0).any() else np.nan
    known = (own > 0) & (end > start)
    if not known.any():
        return None
    carried = rates[1:] * (end - start) / 1e9
    return _Samples(start[known], end[known], carried[known], own[known], ratio[known])


def _finding(evidence: Evidence, rank: int, samples: _Samples, guilty: Bools, rate: Reals, slowness: Reals) -> Finding | None:
    pairs, transfers = evidence.pairs, links.Transfers(evidence)
    at = np.searchsorted(samples.start, pairs.last_start, side="right") - 1
    inside = (at >= 0) & (pairs.last_start < samples.end[np.maximum(at, 0)]) & guilty[np.maximum(at, 0)] & (slowness > _SLOWER)
    lost = evidence.step_sum(np.where(inside, transfers.ms * (1 - 1 / np.maximum(slowness, 1)), 0.0), pairs.pair_step)
    touched = np.intersect1d(np.flatnonzero(lost > 0), np.flatnonzero(evidence.steps.usable))
    if not len(touched):
        return None
    exposed = np.where(np.isfinite(evidence.exposed_transfer), evidence.exposed_transfer, np.inf)
    cost, typical = float(np.mean(np.minimum(lost, exposed)[touched])), evidence.steps.typical_ms
    share = len(touched) / max(int(evidence.steps.usable.sum()), 1)
    if cost * share < _SHARE * typical:
        return None
    code, names = transfers.group
    shared = sorted({names[one] for one in code[inside & (code >= 0)].tolist()})
    ranks = tuple(sorted({one for name in shared for one in evidence.members[name]}))
    foreign, slower = float(np.median(rate[guilty])) * 1e9, float(np.median(slowness[inside]))
    steps = evidence.step_numbers(touched)
    return Finding(
        kind="contention",
        cause="link",
        ranks=ranks,
        severity=severity(cost * share, typical),
        confidence=0.75,
        cost_ms=cost,
        steps=steps,
        evidence={
            "slowdown": slower,
            "foreign_bytes_s": foreign,
            "link_of_rank": rank,
            "process_groups": shared,
            "samples": int(guilty.sum()),
            "lost_ms": cost,
            "step_ms": typical,
        },
        advice=ADVICE,
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: collectives of process group{'s' if len(shared) > 1 else ''} "
        f"{', '.join(shared)} take {slower:.2g} times as long in {len(steps)} steps from {steps[0]} to {steps[-1]}, while the link of rank "
        f"{rank}'s host carries {megabytes(foreign)} a second that are not of this run; {milliseconds(cost)} a step.",
    )
