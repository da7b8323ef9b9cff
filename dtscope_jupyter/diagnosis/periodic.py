# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are late in every second, third, ... step, by less than what makes a single step stand out.

The steps are folded by each period. A rank's place in the fold counts where it is late in most of its steps since the first such
one, hardly ever in the others, more often and by more than chance gives one of so many ranks, periods, places and beginnings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.late import Late

FEWEST, _LONGEST = 3, 10
"""A rhythm needs three beats; longer periods come by single steps."""
_MOSTLY, _HARDLY = 0.75, 0.25
_SHARE, _SIGMA = 0.02, 1.4826
_BEYOND_CHANCE = 3.0
_RARELY = 0.01
"""Runs without a fault in which chance may give a rhythm."""


def find(late: Late, usable: Ints) -> dict[int, tuple[int, Ints]]:
    """Of each row that has one its shortest period, and the columns in which it is late."""
    net = np.nan_to_num(late.net[:, usable])
    ids, least = late.evidence.steps.ids[usable], _SHARE * late.evidence.steps.typical_ms
    found: dict[int, tuple[int, Ints]] = {}
    longest = min(_LONGEST, len(usable) // FEWEST)
    tries = len(net) * sum(range(2, longest + 1))
    for period in range(2, longest + 1):
        for place in range(period):
            on = ids % period == place
            for row, begun in _late_in(net, on, least, tries):
                found.setdefault(row, (period, usable[np.flatnonzero(on & (np.arange(len(on)) >= begun))]))
    return found


def by_chance(hits: int, beats: int, rate: float, tries: float) -> bool:
    """Whether so many late steps among so many beats may be chance, where a share `rate` of all steps is late and there were many `tries`.

    Binomial: tries * C(beats, hits) * rate^hits, which bounds the expected number of such rhythms.
    """
    ways = math.lgamma(beats + 1) - math.lgamma(hits + 1) - math.lgamma(beats - hits + 1)
    return math.log(tries) + ways + hits * math.log(rate) > math.log(_RARELY)


def _late_in(net: Reals, on: Bools, least: float, tries: int) -> list[tuple[int, int]]:
    """Rows that are late in the steps `on` and in no others, each with the place of the first such step."""
    if min(on.sum(), (~on).sum()) < FEWEST:
        return []
    usual = np.median(net[:, ~on], axis=1)
    ahead = np.quantile(net[:, on], _MOSTLY, axis=1) - usual
    flagged = net > (usual + ahead / 2)[:, None]
    begun = np.argmax(flagged & on, axis=1)
    since = np.arange(net.shape[1])[None, :] >= begun[:, None]
    own, rest = since & on, since & ~on
    steady = (_share(flagged, own) >= _MOSTLY) & (_share(flagged, rest) <= _HARDLY) & ((own & flagged).sum(1) >= FEWEST) & (ahead > least)
    return [(row, int(begun[row])) for row in np.flatnonzero(steady).tolist() if _sure(net, row, own[row], on, least, tries)]


def _sure(net: Reals, row: int, own: Bools, on: Bools, least: float, tries: int) -> bool:
    """Whether neither the scatter of the steps between nor as late steps of any rank give such a rhythm by chance."""
    between = net[row, ~on]
    usual, middle = float(np.median(between)), float(np.median(net[row, own]))
    noise = _SIGMA * float(np.median(np.abs(between - usual)))
    chance = float(np.sqrt(2 * np.log(tries))) + _BEYOND_CHANCE
    far = net > (usual + middle) / 2
    rate = (1 + int((far & ~on).sum())) / (1 + int((~on).sum()) * len(net))
    likely = by_chance(int(far[row, own].sum()), int(own.sum()), rate, tries * int(on.sum()))
    return middle - usual > max(least, chance * noise / np.sqrt(own.sum())) and not likely


def _share(flagged: Bools, chosen: Bools) -> Reals:
    return np.asarray((flagged & chosen).sum(1) / np.maximum(chosen.sum(1), 1))
