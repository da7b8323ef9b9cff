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

_LOOKS = (("steps", "nonfinite"), ("steps", "synced_norm"), ("gradients", "nonfinite"), ("gradients", "local_norm"))
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
    before, after = [*_by_parameter(evidence), *_counted(evidence)], _synchronised(evidence)
    earliest = min((step for step, _, _ in before), default=None)
    sightings = before + [one for one in after if earliest is None or one[0] < earliest]
    if not sightings:
        return None
    first = min(step for step, _, _ in sightings)
    here = [sighting for sighting in sightings if sighting[0] == first]
    ranks = tuple(sorted({rank for _, rank, _ in here}))
    parameters = sorted({one for _, _, one in here if one >= 0}, reverse=True)
    names = [parameter_name(evidence, one) for one in parameters]
    good = last_known(evidence, first, _LOOKS)
    told = {
        "first_step": first,
        "not_before": None if good is None else good + 1,
        "last_good_step": good,
        "parameters": names[:20],
        "count": _count(evidence, first, ranks),
        "seen": "local gradients" if _local(evidence, first) else "synchronised gradients",
    }
    where = f" in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""
    sentence = (
        f"{name_ranks(ranks, len(evidence.expected_ranks))}: the first non-finite gradients appear {between(good, first)}{where}"
        f"{_who(evidence, ranks, first, good)}."
    )
    return _finding("gradient", ranks, first, told, sentence)


def _who(evidence: Evidence, ranks: tuple[int, ...], first: int, good: int | None) -> str:
    """What the sighting tells of the rank that began it."""
    if len(ranks) < len(evidence.ranks):
        return ", before they are averaged" if _local(evidence, first) else " after they were averaged; the other ranks' are finite"
    if len(ranks) == 1:
        return ""
    spread = good is not None and good < first - 1
    return ", by then on all ranks: which of them began it was not looked at" if spread else ", on all ranks at once"


def between(good: int | None, first: int) -> str:
    """When, for a sentence: the step, or the interval that nobody looked into."""
    if good is None and first > 0:
        return f"in step {first} or before, the first that was looked at"
    if good is None or good == first - 1:
        return f"in step {first}"
    return f"between steps {good + 1} and {first} (step {good} is known to be good, those between were not looked at)"


def _local(evidence: Evidence, step: int) -> bool:
    """Whether non-finite values of local gradients were seen in the step."""
    return any(found and found[0][0] == step for found in (_by_parameter(evidence), _counted(evidence)))


def _by_parameter(evidence: Evidence) -> list[tuple[int, int, int]]:
    table = evidence.tables["gradients"]
    norms = columns.reals(table, "local_norm")
    told = np.asarray(table["local_norm"].is_valid())
    bad = (np.nan_to_num(columns.reals(table, "nonfinite")) > 0) | (told & ~np.isfinite(norms))
    return _first_rows(table, bad, columns.ints(table, "parameter_id"))


def _counted(evidence: Evidence) -> list[tuple[int, int, int]]:
    table = evidence.tables["steps"]
    return _first_rows(table, np.nan_to_num(columns.reals(table, "nonfinite")) > 0, np.full(len(table), -1))


def _synchronised(evidence: Evidence) -> list[tuple[int, int, int]]:
    table = evidence.tables["steps"]
    told = np.asarray(table["synced_norm"].is_valid())
    return _first_rows(table, told & ~np.isfinite(columns.reals(table, "synced_norm")), np.full(len(table), -1))


def _first_rows(table: Any, bad: Bools, parameter: Ints) -> list[tuple[int, int, int]]:
    """(step, rank, parameter) of the bad rows of the earliest step that has any."""
    if not bad.any():
        return []
    step, rank = columns.ints(table, "step"), columns.ints(table, "rank")
    chosen = bad & (step == step[bad].min())
    return list(zip(step[chosen].tolist(), rank[chosen].tolist(), parameter[chosen].tolist(), strict=True))


def last_known(evidence: Evidence, first: int, looks: tuple[tuple[str, str], ...]) -> int | None:
    """The last step before `first` of which any of the (table, column) has a value; None where there is none."""
    steps: set[int] = set()
    for name, column in looks:
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
    good = _last_good_loss(notes, step)
    dated = {"first_step": step, "not_before": None if good is None else good + 1, "last_good_step": good}
    since = f"since step {step}" if good in (None, step - 1) else f"since step {step}; it was last given, and finite, in step {good}"
    sentence = f"{name_ranks(ranks, len(evidence.expected_ranks))}: the loss is not finite {since}."
    return _finding("loss", ranks, step, dated, sentence)


def _last_good_loss(notes: Any, first: int) -> int | None:
    code, names = columns.codes(notes, "name")
    named = np.array(["loss" in name.lower() for name in names] + [False])[code]
    step = columns.ints(notes, "step")
    earlier = step[columns.is_any(notes, "kind", ("scalar",)) & named & (step != NONE) & (step < first)]
    return int(earlier.max()) if len(earlier) else None


def _finding(cause: str, ranks: tuple[int, ...], step: int, told: dict[str, Any], sentence: str) -> Finding:
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
