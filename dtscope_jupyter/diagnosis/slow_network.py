# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A network that was slow from the start, between hosts without devices: far below what any wire of today carries.

With nothing to compare with, only rates that can't be healthy count, and only where the hosts had CPU to spare. The side: a
rank whose sends are stuck in its own host's queue leaves each collective before the others, which still wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints
    from dtscope_jupyter.diagnosis.evidence import Evidence
    from dtscope_jupyter.diagnosis.links import Transfers

FLOOR_GB_S = 0.05
"""Less than half of what Gigabit Ethernet carries (0.117 GB/s of payload); gloo over loopback reaches 0.3 and more."""
LARGE_BYTES = 256 * 2**10
_IDLE_CPU = 0.05
_EXPOSED = 0.2
_EARLIER, _ALWAYS = 0.1, 0.8
_FEWEST = 5


def slow(evidence: Evidence, transfers: Transfers, chosen: Ints) -> Ints:
    """The pairs of large messages that went below the floor while CPUs were idle; none where too little is known."""
    none = np.zeros(0, np.int64)
    delay = evidence.steps.column("thread_delay_ms") / evidence.steps.duration
    if evidence.tables["devices"]["name"].null_count < len(evidence.tables["devices"]) or not np.isfinite(delay).any():
        return none
    large = chosen[evidence.pairs.bytes[chosen] >= LARGE_BYTES]
    if len(large) < _FEWEST or float(np.nanmedian(delay)) > _IDLE_CPU:
        return none
    exposed = evidence.exposed_transfer[np.isfinite(evidence.exposed_transfer)]
    if not len(exposed) or float(np.median(exposed)) < _EXPOSED * evidence.steps.typical_ms:
        return none
    rate = transfers.wire_bytes[large] / transfers.ms[large] / 1e6
    return large if float(np.median(rate)) < FLOOR_GB_S else none


def side(evidence: Evidence, pairs: Ints, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The one rank that leaves nearly every pair clearly before the others, else all of the group."""
    rows = position(evidence.ranks, np.array(ranks))
    ends = np.full((len(rows), len(pairs)), np.nan)
    for number, pair in enumerate(pairs.tolist()):
        first, size = int(evidence.pairs.first[pair]), int(evidence.pairs.size[pair])
        place = {int(rank): at for at, rank in enumerate(rows)}
        for row in range(first, first + size):
            if int(evidence.pairs.rank[row]) in place:
                ends[place[int(evidence.pairs.rank[row])], number] = evidence.pairs.end[row] / 1e6
    whole = ends[:, np.isfinite(ends).all(0)]
    if whole.shape[1] < _FEWEST:
        return ranks
    lead = np.partition(whole, 1, axis=0)[1] - whole
    clear = lead > _EARLIER * float(np.median(evidence.pairs.transfer_ms[pairs]))
    early = np.flatnonzero(clear.mean(1) >= _ALWAYS)
    return (ranks[int(early[0])],) if len(early) == 1 else ranks
