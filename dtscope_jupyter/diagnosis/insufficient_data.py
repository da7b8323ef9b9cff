# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Insufficient data: what is missing for a verdict, said instead of a guess."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds, name_ranks

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis.evidence import Evidence

FEWEST_STEPS = 2
_CLOCK_SHARE = 0.1
ADVICE = {
    "missing_ranks": "Give the files of all ranks, or record them into one run directory.",
    "missing_steps": "Record at least three whole steps; mark them with the optimizer or with torch.profiler's step().",
    "clock": "Ship ranks of other hosts through a collector, which measures their clocks, or keep clocks together by NTP or PTP.",
    "no_timing": "Record with the collectors or torch.profiler; Flight Recorder dumps have times where TORCH_NCCL_ENABLE_TIMING=1.",
}

_ALONE = "Run it on two ranks or more (-n 2), or give the files of all ranks."


def find(evidence: Evidence, *, verdict: bool) -> list[Finding]:
    """What is missing; `verdict` says that something was found all the same, so that times and steps are not asked for."""
    found = [_missing_ranks(evidence), _clock(evidence)]
    if not verdict:
        found += [_no_timing(evidence) or _alone(evidence) or _missing_steps(evidence)]
    return [finding for finding in found if finding is not None]


def _missing_ranks(evidence: Evidence) -> Finding | None:
    missing = sorted(evidence.expected_ranks - set(evidence.ranks.tolist()))
    largest = int(np.nanmax(columns.reals(evidence.tables["collectives"], "group_size"), initial=0))
    more = largest - len(evidence.expected_ranks)
    if not missing and more > 0:
        told = {"missing_count": more, "present": evidence.ranks.tolist()[:100]}
        text = f"{more} rank{'s' if more > 1 else ''} of a process group of {largest} have no data; who waits for them can't be told."
        return _finding("missing_ranks", (), told, text)
    if not missing:
        return None
    told = {"missing": missing[:100], "missing_count": len(missing), "present": evidence.ranks.tolist()[:100]}
    return _finding(
        "missing_ranks",
        tuple(missing),
        told,
        f"{name_ranks(tuple(missing))}: no data; who waits for {'it' if len(missing) == 1 else 'them'} can't be told.",
    )


def _alone(evidence: Evidence) -> Finding | None:
    """A rank whose steps are all there, of a job of one."""
    if evidence.live or len(evidence.ranks) != 1 or len(evidence.expected_ranks) > 1 or len(evidence.steps.ids) < FEWEST_STEPS:
        return None
    rank = int(evidence.ranks[0])
    text = f"Only rank {rank} was recorded: who waits for whom can't be told."
    return replace(_finding("missing_ranks", (), {"present": [rank]}, text), advice=_ALONE)


def _missing_steps(evidence: Evidence) -> Finding | None:
    steps = evidence.steps
    whole = int((np.isfinite(steps.duration).sum(0) >= max(2, len(evidence.ranks) / 2)).sum()) if len(steps.ids) else 0
    if evidence.live or whole >= FEWEST_STEPS or not len(evidence.ranks):
        return None
    told = {"whole_steps": whole, "needed": FEWEST_STEPS}
    return _finding(
        "missing_steps",
        tuple(evidence.ranks.tolist()),
        told,
        f"{whole} whole step{'' if whole == 1 else 's'} of several ranks: too few for a verdict."
        if whole
        else "No whole step of several ranks was recorded, so there is no verdict.",
    )


def _no_timing(evidence: Evidence) -> Finding | None:
    table = evidence.tables["collectives"]
    if not len(table) or evidence.live:
        return None
    timed = (columns.ints(table, "start_ns") != NONE) & (columns.ints(table, "end_ns") != NONE)
    if timed.any() or np.isfinite(columns.reals(table, "duration_ms")).any():
        return None
    told = {"collectives": len(table)}
    return _finding(
        "no_timing", tuple(evidence.ranks.tolist()), told, f"{len(table)} collectives have no times: who is slow can't be told."
    )


def _clock(evidence: Evidence) -> Finding | None:
    uncertainty, typical = evidence.waits.uncertainty / 1e6, evidence.steps.typical_ms
    if not typical or uncertainty < _CLOCK_SHARE * typical:
        return None
    told = {"uncertainty_ms": uncertainty, "step_ms": typical}
    return _finding(
        "clock",
        tuple(evidence.ranks.tolist()),
        told,
        f"Clocks of the ranks' hosts agree only within {milliseconds(uncertainty)}; lateness below that can't be told.",
    )


def _finding(cause: str, ranks: tuple[int, ...], told: dict[str, Any], sentence: str) -> Finding:
    return Finding(
        kind="insufficient_data",
        cause=cause,
        ranks=ranks,
        severity=Severity.INFO,
        confidence=1.0,
        cost_ms=0.0,
        steps=(),
        evidence=told,
        advice=ADVICE[cause],
        sentence=sentence,
    )
