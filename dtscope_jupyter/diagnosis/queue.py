# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a rank's host or its device was late, where no profiler saw the device.

A device that has more to do starts a collective long after its host enqueued it; a host that stopped enqueues it late in the step,
and its device is there at once. What the host did otherwise (CPU time) is no telling sign: hosts sleep while devices work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis import columns as arrow
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis.late import others

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence
    from dtscope_jupyter.diagnosis.late import Late

_HALF = 0.5


def shared(evidence: Evidence, late: Late, row: int, columns: Ints, excess: dict[str, float], loss: float) -> dict[str, float]:
    """`excess` with an idle host's part given to the device (`own`), unless the host was later than its device was busy."""
    idle = excess.get("host_stall", 0.0)
    if idle <= 0:
        return excess
    seen = columns[late.at[row, columns] >= 0]
    host_late = _first_collectives(evidence, row, seen) if len(seen) else _host_phases(evidence, row, columns)
    if host_late >= _HALF * loss:
        return excess
    return {**excess, "own": excess.get("own", 0.0) + idle, "host_stall": 0.0}


def _first_collectives(evidence: Evidence, row: int, columns: Ints) -> float:
    """How much longer than the others' the host took to the first collective of the step, less how much longer that was queued; ms."""
    pairs, steps = evidence.pairs, evidence.steps
    enqueue = arrow.ints(pairs.table, "enqueue_ns")
    chosen = np.flatnonzero((pairs.step >= 0) & np.isin(pairs.step, columns) & (enqueue != NONE))
    chosen = chosen[np.argsort(-pairs.start[chosen], kind="stable")]
    place = pairs.rank[chosen], pairs.step[chosen]
    queued, taken = np.full(steps.shape, np.nan), np.full(steps.shape, np.nan)
    queued[place] = (pairs.start[chosen] - evidence.shift[place[0]] - enqueue[chosen]) / 1e6
    taken[place] = (enqueue[chosen] - steps.start[place]) / 1e6
    ahead = taken - others(taken) - (queued - others(queued))
    return middle_of(ahead[row, columns])


def _host_phases(evidence: Evidence, row: int, columns: Ints) -> float:
    """How much longer than the others' the host took to the backward, and from its end to the optimizer; ms."""
    at = {name: evidence.steps.column(f"{name}_ns")[:, columns] for name in ("backward_start", "backward_end", "optimizer_start")}
    start = np.where(evidence.steps.start == NONE, np.nan, evidence.steps.start)[:, columns]
    taken = (at["backward_start"] - start + np.nan_to_num(at["optimizer_start"] - at["backward_end"])) / 1e6
    return middle_of((taken - others(taken))[row])


def middle_of(values: Reals) -> float:
    """Median of what is known, -inf where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("-inf")
