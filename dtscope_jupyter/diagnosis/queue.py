# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a rank's host or its device was late, where no profiler saw the device.

A host that stops comes late to the backward or to the optimizer, by its own phases of the step. A device with too much to do starts the
last collective of the backward long after its host enqueued it: what was queued earlier in the step a slow host uses up by then. Where no
such step was sampled, a device is late by the same time in each. Where nothing of this shows, the host launches all the time and its
device waits for each launch: such ranks come last by turns and for no fault of theirs, and are not accused. The host's CPU
time is no telling sign in steps of which only that is known: hosts sleep while devices work, and launching takes a slow one longer.
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

JUDGED = "judged_by_queue"
"""In `excess`, then in the evidence beside it: ms that are the device's by the length of its queue alone."""
_HALF, _STALLS = 0.5, 0.75
"""A stop of the host shows whole in its phases, with what of it was hidden; of slow launching the forward's part, a third to half."""
_BOUND = 0.1
"""Where a tenth of a step's work is queued before the device, the device is what all wait for, not its host."""


def shared(evidence: Evidence, late: Late, row: int, columns: Ints, excess: dict[str, float], loss: float) -> tuple[dict[str, float], bool]:
    """`excess` with the thread's part given to the host or the device; and whether the rank is merely bound by its host."""
    idle, own = excess.get("host_stall", 0.0), excess.get("own", 0.0)
    worked = 0.0 if (late.at[row, columns] >= 0).all() else max(own, 0.0)
    if idle + worked < _HALF * loss:
        return excess, False
    if _host_phases(evidence, row, columns) >= _STALLS * loss:
        return excess, False
    if _by_device(evidence, late, row, columns):
        return {**excess, "own": own + idle, "host_stall": 0.0, JUDGED: idle}, False
    return {**excess, "own": own - worked, "host_stall": 0.0}, True


def _by_device(evidence: Evidence, late: Late, row: int, columns: Ints) -> bool:
    sampled = bool((late.at[row, columns] >= 0).any())
    even = late.even(row, columns)
    if even or (even is False and not sampled):
        return even
    return _queued(evidence, late, row, columns) >= _BOUND * evidence.steps.typical_ms


def _queued(evidence: Evidence, late: Late, row: int, columns: Ints) -> float:
    """How long the last collective of the backward lay behind other work on the device, ms; of all steps where none of these tells."""
    pairs = evidence.pairs
    enqueue, backward = arrow.ints(pairs.table, "enqueue_ns"), arrow.is_any(pairs.table, "phase", ("backward",))
    seen = columns[late.at[row, columns] >= 0]
    chosen = np.flatnonzero((pairs.step >= 0) & (pairs.rank == row) & (enqueue != NONE) & (backward if backward.any() else True))
    if len(seen):
        chosen = chosen[np.isin(pairs.step[chosen], seen)]
    chosen = chosen[np.argsort(pairs.start[chosen], kind="stable")]
    queued = np.full(len(evidence.steps.ids), np.nan)
    queued[pairs.step[chosen]] = (pairs.start[chosen] - evidence.shift[row] - enqueue[chosen]) / 1e6
    return middle_of(queued)


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
