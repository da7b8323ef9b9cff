# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""All rules over one run, and their costs together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from dtscope_jupyter import schema
from dtscope_jupyter.diagnosis import (
    contention,
    desync,
    ends,
    errors,
    hang,
    implicit_copy,
    insufficient_data,
    low_overlap,
    nonfinite,
    queue,
    slow_link,
    straggler,
)
from dtscope_jupyter.diagnosis.evidence import Evidence
from dtscope_jupyter.diagnosis.finding import Finding, Severity, severity
from dtscope_jupyter.diagnosis.result import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Mapping

    import networkx as nx
    import pyarrow as pa

_MOSTLY = 0.5
_STAYS = ("hang", "desync", "nonfinite", "insufficient_data")
_PAUSES, _HEALS_S, _ONCE_S = 2, 1.0, 10.0
"""Live, a finding goes after a second and two steps, or twice its longest pause, without its fault; a single event after ten."""
_NOTHING = 0.001
"""A late rank that costs less than this share of a step costs nothing."""
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def diagnose(tables: Mapping[str, pa.Table], *, topology: nx.MultiGraph[str] | None = None, live: bool = False) -> Diagnosis:
    """Says what is wrong with a run, who is to blame, what it costs and what to change.

    Args:
        tables: A run's tables; names that are missing count as empty.
        topology: The hosts' links as `ingest` reads them from NCCL's files, if there are any.
        live: Whether the run goes on: open collectives are then judged by the clock of now.

    Returns:
        The findings: stuck and wrong runs first, then by cost. Costs are shares of the time lost, never more than that together.
    """
    evidence = Evidence({**schema.empty_tables(), **tables}, topology, live)
    found = _worth(_costs(evidence, _find(evidence)), evidence.steps.typical_ms if len(evidence.steps.ids) else 0.0)
    found = [straggler.priced(each) if each.kind == "straggler" else each for each in found]
    found += insufficient_data.find(evidence, verdict=bool(found))
    if live:
        found = [each for each in found if not _healed(evidence, each)]
    found.sort(key=lambda each: (_ORDER[each.severity], -_weight(each), each.kind, each.cause, each.ranks))
    usable = int(evidence.steps.usable.sum()) if len(evidence.steps.ids) else 0
    typical = evidence.steps.typical_ms if usable else 0.0
    recorded, mean = len(evidence.steps.ids), evidence.steps.mean_ms
    return Diagnosis(found, evidence.ranks.tolist(), usable, typical, remarks=_remarks(evidence), recorded=recorded, mean_ms=mean)


def _healed(evidence: Evidence, finding: Finding) -> bool:
    """Whether a fault of time has not been seen for longer than it ever paused, some steps and seconds: a live view lets it go."""
    at = evidence.steps.index(np.array(finding.steps, np.int64))
    at = at[at >= 0]
    if not len(at) or finding.kind in _STAYS:
        return False
    ends = evidence.steps.end.max(0)
    pause = int(np.diff(at).max(initial=1))
    behind = len(ends) - 1 - int(at[-1])
    age_s = float(ends.max() - ends[at[-1]]) / 1e9
    return behind > _PAUSES * pause and age_s > (_ONCE_S if len(at) == 1 else _HEALS_S)


def _worth(found: list[Finding], typical_ms: float) -> list[Finding]:
    """All but late ranks that nobody loses anything by."""
    return [each for each in found if each.kind != "straggler" or each.cost_ms > _NOTHING * typical_ms]


def _remarks(evidence: Evidence) -> tuple[str, ...]:
    """Warnings of the reader that limit every finding, as sentences."""
    notes = evidence.tables["notes"]
    texts = notes.filter(pc.equal(notes["name"], "several_jobs"))["text"].drop_null().to_pylist()
    return tuple(f"{text[:1].upper()}{text[1:]}." for text in texts if text)


def _weight(finding: Finding) -> float:
    return float("inf") if finding.kind in ("hang", "desync", "nonfinite") else finding.cost_ms


def _find(evidence: Evidence) -> list[Finding]:
    apart = desync.find(evidence)
    mismatched = {rank for each in apart if each.cause != "values" for rank in each.ranks}
    stuck = [each for each in hang.find(evidence, desynchronised=bool(mismatched)) if not mismatched.issuperset(each.ranks)]
    ended, stuck = _settled(ends.find(evidence, desynchronised=bool(mismatched)), stuck)
    failing = [] if apart or stuck else [each for each in (errors.find(evidence),) if each]
    late = straggler.find(evidence)
    slow = slow_link.find(evidence)
    overlap = low_overlap.find(evidence, slow)
    unlike = any(each.cause in ("compute", "slow_device") for each in late)
    beside = [each for each in contention.find(evidence) if each.cause != "sm" or not unlike]
    slow = [each for each in slow if not _explained(each, beside)]
    copied = implicit_copy.find(evidence)
    late = [each for each in late if not (_is_copy(each, copied) or _is_link(each, slow))]
    return [*apart, *ended, *stuck, *failing, *nonfinite.find(evidence), *late, *slow, *overlap, *beside, *copied]


def _settled(ended: list[Finding], stuck: list[Finding]) -> tuple[list[Finding], list[Finding]]:
    """A rank that ended is no second finding of those that waited for it; where they waited for one that lives, its hang is the cause."""
    ranks = {rank for each in ended for rank in each.ranks}
    lives = [each for each in stuck if each.cause != "process_died" and not ranks.issuperset(each.ranks)]
    if any(ranks & set(each.evidence.get("waiting", ())) for each in lives):
        return [], stuck
    return ended, lives if ended else stuck


def _explained(slow: Finding, beside: list[Finding]) -> bool:
    """Whether a link is slow by what else uses it at the time: other groups of the run or somebody else."""
    steps, groups = set(slow.steps), set(slow.evidence["process_groups"])
    return any(
        groups <= set(each.evidence.get("process_groups", ())) and len(steps & set(each.steps)) >= _MOSTLY * len(steps)
        for each in beside
        if slow.cause != "transport"
    )


def _is_link(late: Finding, slow: list[Finding]) -> bool:
    """Whether a rank is late by what only its queue tells, while all that it sends is slow by more: both ends of that wait unevenly."""
    guessed = late.evidence.get(queue.JUDGED, 0.0) > 0
    return guessed and any(each.cause == "transport" and each.cost_ms > late.cost_ms for each in slow)


def _is_copy(late: Finding, copied: list[Finding]) -> bool:
    """Whether a rank is late by nothing but implicit copies of its host that have a finding of their own."""
    return late.cause == "host_to_device_copy" and any(
        each.cause != "pageable_host_memory" and each.evidence["measured"] and set(late.ranks) <= set(each.ranks) for each in copied
    )


def _costs(evidence: Evidence, found: list[Finding]) -> list[Finding]:
    """Scales costs down where together they exceed what was lost: the step time beyond one rank's own compute."""
    typical = evidence.steps.typical_ms if len(evidence.steps.ids) else 0.0
    share = np.array([len(each.steps) / max(len(evidence.steps.ids), 1) for each in found])
    total = float((np.array([each.cost_ms for each in found]) * share).sum()) if found else 0.0
    lost = _lost_ms(evidence)
    if total <= lost or total <= 0:
        return found
    scaled = [replace(each, cost_ms=each.cost_ms * lost / total) for each in found]
    return [
        replace(new, severity=severity(new.cost_ms, typical)) if old.cost_ms > 0 and old.severity is not Severity.INFO else new
        for old, new in zip(found, scaled, strict=True)
    ]


def _lost_ms(evidence: Evidence) -> float:
    """Mean step time less the least compute that any rank did: nothing can win more."""
    steps = evidence.steps
    if not len(steps.ids) or not steps.usable.any():
        return float("inf")
    compute = steps.busy[:, steps.usable]
    least = float(np.nanmin(compute)) if np.isfinite(compute).any() else 0.0
    return max(float(np.nanmean(steps.duration[:, steps.usable])) - least, 0.0)
