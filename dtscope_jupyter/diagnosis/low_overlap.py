# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Low overlap: communication that nothing hides although no rank is late, and what hides it.

Exposed transfer of a step = its exposed communication on the rank that waited least. Where a profiler saw launches, only
that part counts during which compute already launched had to wait: while the host is the bottleneck, communication in
the gaps costs nothing. The gain is what a replay of the step's own bytes and times in other buckets would save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter import intervals
from dtscope_jupyter.analysis import columns
from dtscope_jupyter.diagnosis import links
from dtscope_jupyter.diagnosis.finding import Finding, Severity, megabytes, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

NEEDS_WORK = 0.4
"""Below this overlap ratio the design says that a run needs work."""
_SHARE = 0.02
_TINY = 0.01
"""Collectives of less than this share of a step's bytes are no buckets."""
_CAPS_MB = (10, 25, 50, 100, 200)
_DEFAULT_BYTES = 26 * 2**20
_FEWEST = 2
ADVICE = {
    "one_bucket": "Let DDP use several buckets: bucket_cap_mb={cap} would win about {gain} a step in a replay of this run.",
    "bucket_size": "Set bucket_cap_mb={cap}: a replay of this run's bucket times wins about {gain} a step.",
    "blocking_wait": "Start the collectives with async_op=True and wait for them only where their result is needed.",
    "tail": "Make the last bucket smaller (a smaller bucket_cap_mb, static_graph=True), so that less is left after backward.",
    "unknown": "Prefetch (FSDP2: set_modules_to_forward_prefetch, set_modules_to_backward_prefetch), or use async_op=True.",
}
_STRUCTURAL = ("one_bucket", "blocking_wait")
"""Plain to see in the program. On CPUs communication takes the cores that compute, so that other buckets promise no gain."""
_LITTLE = "Other buckets win next to nothing here, as little is sent: give a step more work (a larger batch, no_sync over several)."


@dataclass(frozen=True)
class _Buckets:
    """The main collectives of a typical step: bytes and milliseconds each, in their order."""

    bytes: Reals
    ms: Reals
    operations: tuple[str, ...]
    blocking: bool


def find(evidence: Evidence, slow: list[Finding] | None = None) -> list[Finding]:
    """At most one finding, over the steps in which no link is slow; one of several is enough whose collectives were recorded.

    But for a program's first step, in which DDP has buckets of the order of declaration and connections are made.
    """
    charged = [step for each in slow or () for step in each.steps]
    recorded = np.isin(np.arange(len(evidence.steps.ids)), evidence.pairs.pair_step)
    known = evidence.steps.usable & np.isfinite(evidence.exposed_transfer) & ~np.isin(evidence.steps.ids, charged)
    usable = np.flatnonzero(known & recorded & (evidence.steps.ids > 0))
    if known.sum() < _FEWEST or not len(usable) or not evidence.pairs.count or not links.Transfers(evidence).whole.all():
        return []
    moved = evidence.step_sum(evidence.pairs.transfer_ms, evidence.pairs.pair_step)[usable]
    exposed = np.minimum(evidence.exposed_transfer[usable], moved)
    if not moved.sum() or 1 - exposed.sum() / moved.sum() >= NEEDS_WORK:
        return []
    paid = float(np.median(np.minimum(exposed, _blocked(evidence)[usable])))
    typical = evidence.steps.typical_ms
    buckets = _typical_buckets(evidence, usable)
    bare = float(np.median(exposed))
    single = buckets is not None and len(buckets.bytes) == 1 and bare >= _SHARE * typical
    if buckets is None or not (paid >= _SHARE * typical or single):
        return []
    return [_finding(evidence, usable, buckets, (paid, bare), 1 - float(exposed.sum() / moved.sum()))]


def _finding(evidence: Evidence, usable: Ints, buckets: _Buckets, lost: tuple[float, float], ratio: float) -> Finding:
    paid, bare = lost
    cause, cap, gain = _cause(evidence, usable, buckets, paid)
    typical = evidence.steps.typical_ms
    cost = min(paid, gain) if cause in ("one_bucket", "bucket_size") else paid
    natural = not evidence.steps.profiled and buckets.bytes.sum() <= _DEFAULT_BYTES
    unsure = natural or (cause not in _STRUCTURAL and not evidence.on_device) or (cause == "unknown" and not evidence.activity.device)
    undivided = len(buckets.bytes) == 1 and buckets.bytes.sum() <= cap * 2**20
    little = (natural or undivided) and cause in ("one_bucket", "bucket_size", "tail") and gain < _SHARE * typical
    ranks = tuple(evidence.ranks.tolist())
    kind = {"one_bucket": "in one bucket", "blocking_wait": "in calls that block"}.get(cause, f"in {len(buckets.bytes)} pieces")
    told = {
        "overlap_ratio": ratio,
        "exposed_ms": bare,
        "blocked_ms": paid,
        "step_ms": typical,
        "collectives_a_step": len(buckets.bytes),
        "bytes_a_step": float(buckets.bytes.sum()),
        "transfer_ms": float(buckets.ms.sum()),
        "replayed_gain_ms": gain,
        "bucket_cap_mb": cap,
    }
    return Finding(
        kind="low_overlap",
        cause=cause,
        ranks=ranks,
        severity=Severity.INFO if unsure else severity(cost, typical),
        confidence=0.6 if unsure else 0.85,
        cost_ms=0.0 if unsure else cost,
        steps=evidence.step_numbers(usable),
        evidence=told,
        advice=_LITTLE if little else ADVICE[cause].format(cap=cap, gain=milliseconds(gain)),
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {megabytes(float(buckets.bytes.sum()))} a step go {kind}, "
        f"and {milliseconds(bare)} of that is hidden by nothing (overlap ratio {ratio:.2f}).",
    )


def _cause(evidence: Evidence, usable: Ints, buckets: _Buckets, paid: float) -> tuple[str, int, float]:
    cap, gain = _replay(evidence, usable, buckets, paid)
    if any(not name.startswith(("all_reduce", "allreduce")) for name in buckets.operations):
        return "unknown", cap, gain
    if buckets.blocking:
        return "blocking_wait", cap, gain
    if len(buckets.bytes) == 1:
        return "one_bucket", cap, gain
    if buckets.ms[-1] >= 0.6 * paid and buckets.bytes[-1] >= buckets.bytes[:-1].max():
        return "tail", cap, gain
    return ("bucket_size" if gain >= _SHARE * evidence.steps.typical_ms else "unknown"), cap, gain


def _typical_buckets(evidence: Evidence, usable: Ints) -> _Buckets | None:
    pairs = evidence.pairs
    step = int(usable[len(usable) // 2])
    chosen = np.flatnonzero((pairs.pair_step == step) & np.isfinite(pairs.bytes) & (pairs.bytes > 0))
    chosen = chosen[np.argsort(pairs.start[pairs.first[chosen]], kind="stable")]
    chosen = chosen[pairs.bytes[chosen] >= _TINY * pairs.bytes[chosen].sum()] if len(chosen) else chosen
    if not len(chosen):
        return None
    code, names = pairs.text("operation")
    waited = columns.reals(pairs.table, "asynchronous")[pairs.first[chosen]]
    return _Buckets(
        pairs.bytes[chosen], pairs.transfer_ms[chosen], tuple(sorted({names[c] for c in code[chosen]})), bool((waited == 0).all())
    )


def _replay(evidence: Evidence, usable: Ints, buckets: _Buckets, paid: float) -> tuple[int, float]:
    """The best of DDP's caps and what it would save, by the step's own bytes, times and length of backward.

    Gradients become ready evenly over the backward; buckets go one after another, each for alpha + beta * bytes.
    """
    backward = _backward_ms(evidence, usable)
    total = float(buckets.bytes.sum())
    alpha, beta = links.fit(buckets.bytes, buckets.ms) if len(buckets.bytes) > 1 else (0.0, float(buckets.ms[0]) / total)
    best = min(_CAPS_MB, key=lambda cap: _exposed(total, cap, alpha, beta, backward))
    if len(buckets.bytes) == 1 and total <= best * 2**20:
        return best, 0.0  # it would be one bucket again
    return best, max(paid - _exposed(total, best, alpha, beta, backward), 0.0)


def _exposed(total: float, cap_mb: int, alpha: float, beta: float, backward: float) -> float:
    count = max(int(np.ceil(total / (cap_mb * 2**20))), 1)
    each, done = alpha + beta * total / count, 0.0
    for number in range(1, count + 1):
        done = max(done, backward * number / count) + each
    return done - backward


def _backward_ms(evidence: Evidence, usable: Ints) -> float:
    """Length of the backward: as the steps tell it, else half of the compute."""
    table = evidence.tables["steps"]
    start, end = columns.ints(table, "backward_start_ns"), columns.ints(table, "backward_end_ns")
    known = (start != columns.NONE) & (end > start)
    if known.any():
        return float(np.median(end[known] - start[known])) / 1e6
    compute = evidence.steps.column("compute_ms")[:, usable]
    return float(np.nanmedian(compute)) / 2 if np.isfinite(compute).any() else 0.0


def _blocked(evidence: Evidence) -> Reals:
    """Of each step (S,), ms in which a rank's launched compute waits while it communicates alone; least over ranks; inf if unseen."""
    steps, activity = evidence.steps, evidence.activity
    if not activity.device:
        return np.full(len(steps.ids), np.inf)
    spans = evidence.tables["spans"]
    rank = position(evidence.ranks, columns.ints(spans, "rank"))
    launch, start = columns.ints(spans, "launch_ns"), columns.ints(spans, "start_ns")
    queued = columns.is_any(spans, "kind", ("compute",)) & (launch != columns.NONE) & (start > launch) & (rank >= 0)
    shift = evidence.shift[rank[queued]]
    waiting = activity.axis.union(rank[queued], launch[queued] + shift, start[queued] + shift)
    waiting = intervals.intersection(waiting, activity.alone)
    found = activity.inside(waiting, steps)
    least: Reals = np.min(np.where(np.isfinite(found), found, np.inf), axis=0)
    return least
