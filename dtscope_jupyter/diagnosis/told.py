# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that their own host accuses: steadily more of something that it tells, while the others wait by more than chance gives.

Where lateness scatters so much that no stretch of late steps stands out, what the host told (waiting for input, garbage
collection, synchronisation, copies) does not scatter with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns as arrow
from dtscope_jupyter.diagnosis.activity import REASONS
from dtscope_jupyter.diagnosis.late import others, surely

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence
    from dtscope_jupyter.diagnosis.late import Late

_FEWEST, _MOSTLY, _SHARE = 5, 0.75, 0.02
_BEYOND_CHANCE = 3.0
"""Standard errors of the mean beyond the largest that chance gives among all ranks."""


@dataclass(frozen=True)
class Told:
    """A rank's row, the steps (columns), the category of time, its excess over the others and what they wait for it, ms a step."""

    row: int
    columns: Ints
    category: str
    excess_ms: float
    cost_ms: float


def find(evidence: Evidence, late: Late, usable: Ints, blamed: set[int]) -> list[Told]:
    """At most one category a rank, of the ranks (numbers) that nobody has blamed."""
    if len(usable) < _FEWEST or not arrow.is_any(evidence.tables["host"], "kind", tuple(REASONS)).any():
        return []
    parts = _parts(evidence, usable)
    found: dict[int, Told] = {}
    for category in REASONS.values():
        excess = parts[category] - others(parts[category])
        for row in _steady(excess, _SHARE * evidence.steps.typical_ms):
            cost, more = _imposed(late, row, usable), surely(excess[row])
            floor = _SHARE * evidence.steps.typical_ms
            known = found.get(row)
            if evidence.ranks[row] not in blamed and cost > floor < more and (known is None or known.excess_ms < more):
                found[row] = Told(row, usable[np.nan_to_num(excess[row]) > 0], category, more, cost)
    return list(found.values())


def _parts(evidence: Evidence, usable: Ints) -> dict[str, Reals]:
    """Milliseconds of each category (R, U) in the usable steps, NaN where a rank has no such step."""
    steps = evidence.steps
    row, place = np.nonzero(np.isfinite(steps.duration[:, usable]))
    shift = evidence.shift[row]
    split = evidence.activity.split(row, steps.start[row, usable[place]] + shift, steps.end[row, usable[place]] + shift)
    parts = {}
    for name in REASONS.values():
        parts[name] = np.full((len(evidence.ranks), len(usable)), np.nan)
        parts[name][row, place] = split[name]
    return parts


def _steady(excess: Reals, least: float) -> list[int]:
    """Rows with at least so much more than the others in most steps."""
    return [int(row) for row in np.flatnonzero((np.nan_to_num(excess) >= least).mean(1) >= _MOSTLY)]


def _imposed(late: Late, row: int, usable: Ints) -> float:
    """Mean of what the others wait for the rank, ms a step; 0 where chance may give as much."""
    cost = late.net[row, usable]
    cost = cost[np.isfinite(cost)]
    if len(cost) < _FEWEST:
        return 0.0
    chance = float(np.sqrt(2 * np.log(len(late.net)))) + _BEYOND_CHANCE
    mean, error = float(cost.mean()), float(cost.std(ddof=1) / np.sqrt(len(cost)))
    return mean if mean > chance * error else 0.0
