# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which step and which ranks tell most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dtscope_jupyter.view.scene.matrix import Matrix


@dataclass(frozen=True, slots=True)
class Chosen:
    """A step and why it was chosen."""

    step: int
    why: str


def telling_step(exposed: Matrix, blamed: Iterable[int] | None) -> Chosen | None:
    """The dearest of the steps that a finding blames, else the median; by exposed communication, mean of the ranks.

    `blamed` is None where no finding costs anything. Steps that a profiler saw go before those it did not; those of which
    nothing but an estimate is known have no time line and are none.
    """
    places = np.flatnonzero(exposed.timed.any(axis=0)) if exposed.steps else np.array([], int)
    seen = places[exposed.exact[:, places].any(axis=0)] if len(places) else places
    places = seen if len(seen) else places
    if not len(places):
        return None
    if len(places) == 1:
        return Chosen(exposed.steps[int(places[0])], "the only one with times")
    cost = np.nanmean(exposed.values[:, places], axis=0)
    if blamed is None:
        middle = int(np.argsort(cost, kind="stable")[(len(cost) - 1) // 2])
        return Chosen(exposed.steps[int(places[middle])], f"the median of {len(places)} by exposed communication")
    wanted = set(blamed)
    known = [i for i, place in enumerate(places) if not wanted or exposed.steps[int(place)] in wanted] or list(range(len(places)))
    worst = max(known, key=lambda i: cost[i])
    why = f"the worst of {len(known)}" if len(known) > 1 else "the one that the finding names"
    return Chosen(exposed.steps[int(places[worst])], why)


def telling_ranks(ranks: Sequence[int], first: Iterable[int], cost: Sequence[float], limit: int) -> list[int]:
    """At most `limit` ranks: those named first, then the dearest and the cheapest, then evenly spread; in order of rank."""
    if len(ranks) <= limit:
        return list(ranks)
    place = np.argsort(np.nan_to_num(np.asarray(cost, float), nan=-1.0), kind="stable")
    present = set(ranks)
    named = dict.fromkeys([*first, *(ranks[int(i)] for i in (*place[-2:], *place[:2]))])
    kept = [rank for rank in named if rank in present][:limit]
    others = [rank for rank in ranks if rank not in named]
    spread = [others[int(i)] for i in np.linspace(0, len(others) - 1, limit - len(kept))] if others else []
    return sorted(kept + spread)
