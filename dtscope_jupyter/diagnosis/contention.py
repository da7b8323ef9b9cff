# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Contention: compute slowed by the communication beside it, and process groups that share a link's time.

A kernel is compared with itself: the n-th call of its name in a step, in the steps and on the ranks where most of it ran
beside communication, against those where none did. Where that call never ran alone, the other calls of its name stand for it,
if they all take about the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns, lines
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis import links, outsider
from dtscope_jupyter.diagnosis.finding import Finding, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence
    from dtscope_jupyter.intervals import Set

_SHARE, _GROUP_SHARE, _SLOWER, _FEWEST = 0.05, 0.02, 1.3, 8
"""Some slowdown beside communication is usual (H200, DDP: 1.1 to 1.25); from 1.3 and a twentieth of a step on it is worth a line."""
_RATIO, _CLEARLY, _HOST_BOUND, _EVEN = 1.35, 1.1, 0.15, 0.2
"""Groups beside each other take a third longer (twice, where one link is all there is), and three of four collectives do so."""
ADVICE = {
    "sm": "Let communication use fewer multiprocessors (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS), or move it to where compute is light.",
    "process_group": "Keep these groups' collectives apart in time, or give them separate links: they halve each other's rate.",
}


def find(evidence: Evidence) -> list[Finding]:
    """Compute beside communication, groups beside groups, and collectives beside what others send."""
    if not len(evidence.steps.ids):
        return []
    return [finding for finding in (_multiprocessors(evidence), _groups(evidence), outsider.find(evidence)) if finding is not None]


def _multiprocessors(evidence: Evidence) -> Finding | None:
    if not evidence.profile.device or _host_bound(evidence):
        return None
    calls = _calls(evidence)
    if not len(calls.key):
        return None
    rank, step, length = calls.rank, calls.step, calls.ms
    beside, alone = calls.share > 0.5, calls.share == 0  # noqa: PLR2004 - most of it
    usual = _usual_length(calls, alone)
    both = beside & np.isfinite(usual)
    if both.sum() < _FEWEST:
        return None
    ratio = float(length[both].sum() / usual[both].sum())
    lost = np.zeros(evidence.steps.shape)
    np.add.at(lost, (rank[both], step[both]), length[both] - usual[both])
    looked = np.isin(np.arange(lost.shape[1]), step)
    lost = lost[:, looked]
    cost, typical = float(np.median(lost.max(0))), evidence.steps.typical_ms
    if ratio < _SLOWER or cost < _SHARE * typical:
        return None
    ranks = evidence.name(np.flatnonzero(np.median(lost, axis=1) >= cost / 2))
    return _finding(
        evidence,
        "sm",
        ranks,
        cost,
        {"slowdown": ratio, "lost_ms": cost, "kernels": int(both.sum())},
        f"kernels beside communication take {ratio:.2g} times as long as the same ones alone, {milliseconds(cost)} a step",
    )


@dataclass(frozen=True)
class _Calls:
    """Of each compute kernel: rank and step place, number of its name and call, number of its name, ms, share beside communication."""

    rank: Ints
    step: Ints
    key: Ints
    name: Ints
    ms: Reals
    share: Reals


def _calls(evidence: Evidence) -> _Calls:
    spans, activity = evidence.tables["spans"], evidence.profile
    rank, step = position(evidence.ranks, columns.ints(spans, "rank")), evidence.steps.index(columns.ints(spans, "step"))
    start, end = columns.ints(spans, "start_ns"), columns.ints(spans, "end_ns")
    chosen = np.flatnonzero(columns.is_any(spans, "kind", ("compute",)) & (rank >= 0) & (step >= 0) & (start != NONE) & (end > start))
    chosen = chosen[np.argsort(start[chosen], kind="stable")]
    name = columns.codes(spans, "name")[0][chosen]
    rank, step, start, end = rank[chosen], step[chosen], start[chosen], end[chosen]
    call = _count_up(np.stack((rank, step, name)))
    key = np.unique(np.stack((name, call)), axis=1, return_inverse=True)[1].ravel()
    shift = activity.axis.shift[rank] + evidence.shift[rank]
    covered = lines.Covered.of(_transfers(evidence)).within(start + shift, end + shift)
    return _Calls(rank, step, key, name, (end - start) / 1e6, covered / (end - start))


def _usual_length(calls: _Calls, alone: Bools) -> Reals:
    """What each kernel takes alone, ms; NaN where nothing tells."""
    same = _median_by(calls.key, calls.ms, alone)[calls.key]
    low, middle, high = (_quantile_by(calls.name, calls.ms, alone, part) for part in (0.1, 0.5, 0.9))
    even = np.where(high - low < _EVEN * middle, middle, np.nan)[calls.name]
    return np.where(np.isfinite(same), same, even)


def _transfers(evidence: Evidence) -> Set:
    """Collectives from the last rank's start on: before that the kernel only waits."""
    pairs = evidence.pairs
    return evidence.profile.axis.union(pairs.rank, np.maximum(pairs.start, pairs.last_start[pairs.pair]), pairs.end)


def _host_bound(evidence: Evidence) -> bool:
    """Whether devices idle between launches for a good part of the step: slower kernels then cost nothing."""
    steps = evidence.steps
    rank, column = np.nonzero(np.isfinite(steps.duration))
    shift = evidence.shift[rank]
    idle = evidence.profile.split(rank, steps.start[rank, column] + shift, steps.end[rank, column] + shift)["launch"]
    return float(np.median(idle / steps.duration[rank, column])) > _HOST_BOUND


def _count_up(keys: Ints) -> Ints:
    """Numbers equal columns from 0 in their order."""
    label = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    order = np.argsort(label, kind="stable")
    first = np.flatnonzero(np.diff(label[order], prepend=-1))
    number = np.empty(len(label), np.int64)
    number[order] = np.arange(len(label)) - np.repeat(first, np.diff(np.append(first, len(label))))
    return number


def _median_by(key: Ints, values: Reals, chosen: Bools) -> Reals:
    """Lower median of the chosen values of each key; NaN where there is none."""
    return _quantile_by(key, values, chosen, 0.5)


def _quantile_by(key: Ints, values: Reals, chosen: Bools, part: float) -> Reals:
    found = np.full(int(key.max()) + 1, np.nan)
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((values[order], key[order]))]
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    found[key[order][first]] = values[order][first + ((count - 1) * part).astype(np.int64)]
    return found


def _groups(evidence: Evidence) -> Finding | None:
    """Groups whose collectives take longer beside another group's than alone, size by size; they run at once: the largest loss counts."""
    pairs = evidence.pairs
    transfers = links.Transfers(evidence)
    code, names = transfers.group
    known = np.isfinite(transfers.wire_bytes) & (transfers.wire_bytes > 0) & transfers.whole & (pairs.pair_step >= 0)
    if len(names) < 2 or known.sum() < _FEWEST:  # noqa: PLR2004 - nobody to share with
        return None
    beside = _beside(evidence, code)
    key = np.unique(np.stack((code, transfers.operation[0], transfers.wire_bytes.astype(np.int64))), axis=1, return_inverse=True)[1].ravel()
    usual = _median_by(key, transfers.ms, known & ~beside)
    both = known & beside & np.isfinite(usual[key])
    if both.sum() < _FEWEST:
        return None
    ratios = transfers.ms[both] / usual[key][both]
    ratio = float(np.median(ratios))
    extra = np.where(both, np.maximum(transfers.ms - usual[key], 0), 0.0)
    lost = np.max([evidence.step_sum(np.where(code == one, extra, 0.0), pairs.pair_step) for one in np.unique(code[both])], axis=0)
    exposed = np.where(np.isfinite(evidence.exposed_transfer), evidence.exposed_transfer, np.inf)
    touched = np.intersect1d(np.unique(pairs.pair_step[both]), np.flatnonzero(evidence.steps.usable))
    if ratio < _RATIO or float(np.quantile(ratios, 0.25)) < _CLEARLY or not len(touched):
        return None
    cost, typical = float(np.mean(np.minimum(lost, exposed)[touched])), evidence.steps.typical_ms
    if cost < _GROUP_SHARE * typical:
        return None
    shared = sorted({names[one] for one in code[both]})
    ranks = tuple(sorted({rank for name in shared for rank in evidence.members[name]}))
    return _finding(
        evidence,
        "process_group",
        ranks,
        cost,
        {"slowdown": ratio, "lost_ms": cost, "process_groups": shared},
        f"collectives of process groups {', '.join(shared)} take {ratio:.2g} times as long beside each other, {milliseconds(cost)} a step",
        touched,
    )


def _beside(evidence: Evidence, code: Ints) -> Bools:
    """Pairs that overlap in time with a pair of another group that has a rank in common."""
    pairs = evidence.pairs
    begin, end = pairs.last_start, np.maximum.reduceat(pairs.end, pairs.first)
    beside: Bools = np.zeros(pairs.count, dtype=bool)
    order = np.lexsort((begin[pairs.pair], pairs.rank))
    own, rank = pairs.pair[order], pairs.rank[order]
    over = (rank[1:] == rank[:-1]) & (begin[own][1:] < end[own][:-1]) & (code[own][1:] != code[own][:-1])
    beside[own[1:][over]] = True
    beside[own[:-1][over]] = True
    return beside


def _finding(
    evidence: Evidence, cause: str, ranks: tuple[int, ...], cost: float, told: dict[str, object], what: str, touched: Ints | None = None
) -> Finding:
    typical = evidence.steps.typical_ms
    touched = np.flatnonzero(evidence.steps.usable) if touched is None else touched
    return Finding(
        kind="contention",
        cause=cause,
        ranks=ranks,
        severity=severity(cost * len(touched) / max(int(evidence.steps.usable.sum()), 1), typical),
        confidence=0.7,
        cost_ms=cost,
        steps=evidence.step_numbers(touched),
        evidence={**told, "step_ms": typical},
        advice=ADVICE[cause],
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {what}.",
    )
