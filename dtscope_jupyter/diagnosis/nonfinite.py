# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Non-finite: the first NaN or infinite value, on whose rank and in which parameter, before averaging gave it to all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis.desync import parameter_name
from dtscope_jupyter.diagnosis.finding import Finding, Severity, name_ranks

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints
    from dtscope_jupyter.diagnosis.evidence import Evidence

ADVICE = {
    "gradient": "Look at this rank's batch of that step and at what is computed before this parameter; clip, or lower the rate.",
    "loss": "Look at the inputs and at the loss of that step: a log or a division of zero, an overflow in half precision.",
}


def find(evidence: Evidence) -> list[Finding]:
    """The first non-finite gradient, and the first non-finite loss where no gradient shows it."""
    gradient = _gradient(evidence)
    loss = _loss(evidence)
    return [finding for finding in (gradient, loss) if finding is not None]


def _gradient(evidence: Evidence) -> Finding | None:
    sightings = [*_by_parameter(evidence), *_by_step(evidence)]
    if not sightings:
        return None
    first = min(step for step, _, _ in sightings)
    here = [sighting for sighting in sightings if sighting[0] == first]
    ranks = tuple(sorted({rank for _, rank, _ in here}))
    parameters = sorted({one for _, _, one in here if one >= 0}, reverse=True)
    names = [parameter_name(evidence, one) for one in parameters]
    before = _last_looked(evidence, first)
    when = f"in step {first}" if before is None or before == first - 1 else f"between steps {before + 1} and {first}"
    where = f" in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""
    told = {
        "first_step": first,
        "not_before": None if before is None else before + 1,
        "parameters": names[:20],
        "count": _count(evidence, first, ranks),
    }
    everyone = len(ranks) == len(evidence.ranks) > 1
    return _finding(
        evidence,
        "gradient",
        ranks,
        first,
        told,
        f"{name_ranks(ranks, len(evidence.expected_ranks))}: "
        f"the first non-finite gradients appear {when}{where}{', on all ranks at once' if everyone else ', before they are averaged'}.",
    )


def _by_parameter(evidence: Evidence) -> list[tuple[int, int, int]]:
    table = evidence.tables["gradients"]
    norms = columns.reals(table, "local_norm")
    told = np.asarray(table["local_norm"].is_valid())
    bad = (np.nan_to_num(columns.reals(table, "nonfinite")) > 0) | (told & ~np.isfinite(norms))
    return _first_rows(table, bad, columns.ints(table, "parameter_id"))


def _by_step(evidence: Evidence) -> list[tuple[int, int, int]]:
    table = evidence.tables["steps"]
    bad = np.nan_to_num(columns.reals(table, "nonfinite")) > 0
    found = _first_rows(table, bad, np.full(len(table), -1))
    if found:
        return found
    told = np.asarray(table["synced_norm"].is_valid())
    return _first_rows(table, told & ~np.isfinite(columns.reals(table, "synced_norm")), np.full(len(table), -1))


def _first_rows(table: Any, bad: Bools, parameter: Ints) -> list[tuple[int, int, int]]:
    """(step, rank, parameter) of the bad rows of the earliest step that has any."""
    if not bad.any():
        return []
    step, rank = columns.ints(table, "step"), columns.ints(table, "rank")
    chosen = bad & (step == step[bad].min())
    return list(zip(step[chosen].tolist(), rank[chosen].tolist(), parameter[chosen].tolist(), strict=True))


def _last_looked(evidence: Evidence, first: int) -> int | None:
    """The last step before `first` in which non-finite values were counted or norms taken; None where there is none."""
    steps: set[int] = set()
    for name, column in (("steps", "nonfinite"), ("steps", "synced_norm"), ("gradients", "nonfinite"), ("gradients", "local_norm")):
        table = evidence.tables[name]
        known = np.asarray(table[column].is_valid())
        steps |= set(np.unique(columns.ints(table, "step")[known]).tolist())
    earlier = [step for step in steps if NONE < step < first]
    return max(earlier) if earlier else None


def _count(evidence: Evidence, step: int, ranks: tuple[int, ...]) -> float:
    table = evidence.tables["steps"]
    chosen = (columns.ints(table, "step") == step) & np.isin(columns.ints(table, "rank"), ranks)
    return float(np.nansum(columns.reals(table, "nonfinite")[chosen]))


def _loss(evidence: Evidence) -> Finding | None:
    notes = evidence.tables["notes"]
    value, told = columns.reals(notes, "value"), np.asarray(notes["value"].is_valid())
    code, names = columns.codes(notes, "name")
    named = np.array(["loss" in name.lower() for name in names] + [False])[code]
    bad = columns.is_any(notes, "kind", ("scalar",)) & named & told & ~np.isfinite(value) & (columns.ints(notes, "step") != NONE)
    found = _first_rows(notes, bad, np.full(len(notes), -1))
    if not found:
        return None
    step, ranks = found[0][0], tuple(sorted({rank for _, rank, _ in found}))
    return _finding(
        evidence,
        "loss",
        ranks,
        step,
        {"first_step": step},
        f"{name_ranks(ranks, len(evidence.expected_ranks))}: the loss is not finite since step {step}.",
    )


def _finding(evidence: Evidence, cause: str, ranks: tuple[int, ...], step: int, told: dict[str, Any], sentence: str) -> Finding:
    del evidence
    return Finding(
        kind="nonfinite",
        cause=cause,
        ranks=ranks,
        severity=Severity.CRITICAL,
        confidence=0.95,
        cost_ms=0.0,
        steps=(step,),
        evidence=told,
        advice=ADVICE[cause],
        sentence=sentence,
    )
