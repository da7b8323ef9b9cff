# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Contention: compute slowed by the communication beside it, and process groups that share a link's time.

A kernel is compared with itself: the n-th call of its name in a step, in the steps and on the ranks where most of it ran
beside communication, against those where none did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns, lines
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis import links
from dtscope_jupyter.diagnosis.finding import Finding, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence
    from dtscope_jupyter.intervals import Set

_SHARE, _SLOWER, _FEWEST = 0.05, 1.3, 8
"""Some slowdown beside communication is usual (H200, DDP: 1.1 to 1.25); from 1.3 and a twentieth of a step on it is worth a line."""
_RATIO, _HOST_BOUND = 1.5, 0.15
ADVICE = {
    "sm": "Let communication use fewer multiprocessors (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS), or move it to where compute is light.",
    "process_group": "Keep these groups' collectives apart in time, or give them separate links: they halve each other's rate.",
}


def find(evidence: Evidence) -> list[Finding]:
    """Compute beside communication, and groups beside groups."""
    if not len(evidence.steps.ids):
        return []
    return [finding for finding in (_multiprocessors(evidence), _groups(evidence)) if finding is not None]


def _multiprocessors(evidence: Evidence) -> Finding | None:
    if not evidence.activity.device or _host_bound(evidence):
        return None
    rank, step, key, length, share = _calls(evidence)
    if not len(key):
        return None
    beside, alone = share > 0.5, share == 0  # noqa: PLR2004 - most of it
    usual = _median_by(key, length, alone)
    both = beside & np.isfinite(usual[key])
    if both.sum() < _FEWEST:
        return None
    ratio = float(length[both].sum() / usual[key][both].sum())
    lost = np.zeros(evidence.steps.shape)
    np.add.at(lost, (rank[both], step[both]), length[both] - usual[key][both])
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


def _calls(evidence: Evidence) -> tuple[Ints, Ints, Ints, Reals, Reals]:
    """Of each compute kernel: rank and step place, number of its name and call, ms, and the share beside communication."""
    spans, activity = evidence.tables["spans"], evidence.activity
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
    return rank, step, key, (end - start) / 1e6, covered / (end - start)


def _transfers(evidence: Evidence) -> Set:
    """Collectives from the last rank's start on: before that the kernel only waits."""
    pairs = evidence.pairs
    return evidence.activity.axis.union(pairs.rank, np.maximum(pairs.start, pairs.last_start[pairs.pair]), pairs.end)


def _host_bound(evidence: Evidence) -> bool:
    """Whether devices idle between launches for a good part of the step: slower kernels then cost nothing."""
    steps = evidence.steps
    rank, column = np.nonzero(np.isfinite(steps.duration))
    shift = evidence.shift[rank]
    idle = evidence.activity.split(rank, steps.start[rank, column] + shift, steps.end[rank, column] + shift)["launch"]
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
    """Median of the chosen values of each key; NaN where there is none."""
    found = np.full(int(key.max()) + 1, np.nan)
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((values[order], key[order]))]
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    found[key[order][first]] = values[order][first + (count - 1) // 2]
    return found


def _groups(evidence: Evidence) -> Finding | None:
    """A group whose collectives take longer while another group's run than alone, size by size."""
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
    ratio = float(np.median(transfers.ms[both] / usual[key][both]))
    lost = evidence.step_sum(np.where(both, np.maximum(transfers.ms - usual[key], 0), 0.0), pairs.pair_step)
    exposed = np.where(np.isfinite(evidence.exposed_transfer), evidence.exposed_transfer, np.inf)
    cost, typical = float(np.median(np.minimum(lost, exposed))), evidence.steps.typical_ms
    if ratio < _RATIO or cost < _SHARE * typical:
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
    )


def _beside(evidence: Evidence, code: Ints) -> Bools:
    """Pairs that overlap in time with a pair of another group that has a rank in common."""
    pairs = evidence.pairs
    begin, end = pairs.last_start, np.maximum.reduceat(pairs.end, pairs.first)
    beside: Bools = np.zeros(pairs.count, dtype=bool)
    rank_rows = np.argsort(pairs.start, kind="stable")
    for rank in range(len(evidence.ranks)):
        own = pairs.pair[rank_rows[pairs.rank[rank_rows] == rank]]
        own = own[np.argsort(begin[own], kind="stable")]
        over = (begin[own][1:] < end[own][:-1]) & (code[own][1:] != code[own][:-1])
        beside[own[1:][over]] = True
        beside[own[:-1][over]] = True
    return beside


def _finding(evidence: Evidence, cause: str, ranks: tuple[int, ...], cost: float, told: dict[str, object], what: str) -> Finding:
    typical = evidence.steps.typical_ms
    return Finding(
        kind="contention",
        cause=cause,
        ranks=ranks,
        severity=severity(cost, typical),
        confidence=0.7,
        cost_ms=cost,
        steps=evidence.step_numbers(np.flatnonzero(evidence.steps.usable)),
        evidence={**told, "step_ms": typical},
        advice=ADVICE[cause],
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {what}.",
    )
