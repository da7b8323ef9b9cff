# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Why a rank was late: what it did in the time before it arrived, compared with the median of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis import kernels, queue
from dtscope_jupyter.diagnosis.steps import middle

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence
    from dtscope_jupyter.diagnosis.late import Late

_ENOUGH = 0.5
"""A cause is named where its excess covers half of the lateness or more."""
_ARRIVES = 0.6
"""Below this share of the loss, one late arrival explains it not, and the whole step is compared."""
_BUSY = 0.5
_DRAINS = 0.25
"""A loop of synchronisations costs more than its own time: after it the device's queue is empty, and the rank runs ahead no more."""
_WORKED = 0.15
"""A rank with more work waits longer for a busy CPU as well: from this share of the wait on, the work is the reason."""

CATEGORIES = {
    "compute": "compute",
    "own": "compute",
    "copy": "host_to_device_copy",
    "host_copy": "host_to_device_copy",
    "garbage_collection": "garbage_collection",
    "input": "input",
    "host_sync": "host_sync",
    "host_stall": "host_stall",
    "cpu_delay": "host_stall",
}
PHRASES = {
    "compute": "{time} more compute",
    "slow_device": "{time} more for the same kernels on a slower device",
    "input": "{time} of waiting for input",
    "host_stall": "its host launched nothing for {time}",
    "host_sync": "{time} of host synchronisation",
    "host_to_device_copy": "{time} of copies",
    "garbage_collection": "{time} of garbage collection",
    "cpu_delay": "its training thread waited {time} for a CPU that something else had",
    "unknown": "by {time}, for no reason seen here,",
}
ADVICE = {
    "compute": "Give this rank no more work than the others: look for code that only it runs and for an uneven batch or sequence length.",
    "slow_device": "Look at this device's clock, temperature and other processes; replace it or give it less work.",
    "input": "Speed up this rank's loader: more workers, prefetch_factor, pin_memory, or less work a sample.",
    "host_stall": "Find what this rank's host does there (a sleep, a lock, logging, file access) and move it off the training thread.",
    "host_sync": "Take .item(), .cpu(), print of tensors and synchronize out of this rank's step, or do them every N steps.",
    "host_to_device_copy": "Pin the host memory and copy with non_blocking=True ahead of the step.",
    "garbage_collection": "Call gc.freeze() after set-up, or gc.disable() and gc.collect() on all ranks at the same step.",
    "cpu_delay": "Give every rank a core of its own: fewer loader workers and threads (OMP_NUM_THREADS), no other jobs on this host.",
    "unknown": "Capture a profiler window of this rank to see what it does before it arrives.",
}


@dataclass(frozen=True)
class Reason:
    """The cause, the category of time it rests on, and how much of the lateness that covers."""

    cause: str
    category: str
    coverage: float
    host_bound: bool
    excess: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The key of the phrase and of the advice."""
        return self.category if self.category == "cpu_delay" and self.cause == "host_stall" else self.cause


def reason(evidence: Evidence, late: Late, row: int, columns: Ints) -> Reason:
    """What rank `row` did more of than the others in steps `columns`."""
    loss = float(np.nanmedian(late.cost[row, columns]))
    seen = bool((late.at[row, columns] >= 0).all()) and float(np.nanmedian(late.arrival[row, columns])) >= _ARRIVES * loss
    arrives = seen and _head_start(evidence, row, columns) < _ENOUGH * loss
    excess = _before_arrival(evidence, late, row, columns) if arrives else _whole_step(evidence, row, columns)
    excess = _told(evidence, row, columns, excess)
    waits_for_host = False
    if evidence.on_device and not evidence.activity.device:
        excess, waits_for_host = queue.shared(evidence, late, row, columns, excess, loss)
    named = {name: value for name, value in excess.items() if name in CATEGORIES}
    if not named or loss <= 0:
        return Reason("unknown", "", 0.0, host_bound=False, excess=excess)
    category = max(named, key=lambda name: named[name])
    coverage = named[category] / loss
    bound = excess.get("launch", 0.0) >= _BUSY * loss or waits_for_host
    if coverage < _ENOUGH:
        synced = kernels.many_syncs(evidence, row, columns) if bound or excess.get("host_sync", 0.0) >= _DRAINS * loss else 0.0
        cause = "host_sync" if synced else "unknown"
        return Reason(
            cause, "launch" if synced else category, coverage, bound and not synced, excess, {"syncs_a_step": synced} if synced else {}
        )
    cause, details = CATEGORIES[category], dict[str, Any]()
    if cause == "compute":
        cause, details = kernels.more_or_slower(evidence, row, columns)
    return Reason(cause, category, coverage, host_bound=False, excess=excess, details=details)


def _before_arrival(evidence: Evidence, late: Late, row: int, columns: Ints) -> dict[str, float]:
    """Excess in the time from the start of the step to the arrival at the collective where the rank was latest."""
    pairs, steps = evidence.pairs, evidence.steps
    latest = pairs.pair[late.at[row, columns]]
    count = pairs.size[latest]
    window = np.repeat(np.arange(len(columns)), count)
    at = np.concatenate([np.arange(pairs.first[pair], pairs.first[pair] + pairs.size[pair]) for pair in latest])
    rank = pairs.rank[at]
    begin = steps.start[rank, columns[window]] + evidence.shift[rank]
    parts = evidence.activity.split(rank, begin, pairs.start[at])
    return {name: _excess(values, rank == row, window, len(columns)) for name, values in parts.items() if name != "comm"}


def _head_start(evidence: Evidence, row: int, columns: Ints) -> float:
    """How much later than the others the rank began the step, ms: it was late already."""
    start = evidence.steps.start[:, columns]
    shifted = np.where(start == NONE, np.nan, (start - start.max()) / 1e6) + evidence.shift[:, None] / 1e6
    rest = np.delete(shifted, row, axis=0)
    return float(np.nan_to_num(np.nanmedian(shifted[row] - middle(rest, 0))))


def _whole_step(evidence: Evidence, row: int, columns: Ints) -> dict[str, float]:
    steps = evidence.steps
    rank = np.repeat(np.arange(len(evidence.ranks)), len(columns))
    column = np.tile(columns, len(evidence.ranks))
    known = np.isfinite(steps.duration[rank, column])
    rank, column, window = rank[known], column[known], np.tile(np.arange(len(columns)), len(evidence.ranks))[known]
    shift = evidence.shift[rank]
    parts = evidence.activity.split(rank, steps.start[rank, column] + shift, steps.end[rank, column] + shift)
    excess = {name: _excess(values, rank == row, window, len(columns)) for name, values in parts.items() if name != "comm"}
    busy = _over_others(evidence.steps.busy[:, columns], row)
    if "own" in excess and np.isfinite(busy):
        excess["own"] = busy - sum(value for name, value in excess.items() if name != "own")
    return excess


def _excess(values: Reals, own: np.ndarray, window: Ints, count: int) -> float:
    """Median over windows of the rank's value (its first, of several) minus the median of the others'."""
    mine = np.full(count, np.nan)
    mine[window[own][::-1]] = values[own][::-1]
    ahead = mine - _medians(values[~own], window[~own], count)
    return float(np.nanmedian(ahead)) if np.isfinite(ahead).any() else 0.0


def _medians(values: Reals, window: Ints, count: int) -> Reals:
    """Median of the values of each window, NaN where it has none or one of them is NaN."""
    order = np.lexsort((values, window))
    ordered, size = values[order], np.bincount(window, minlength=count)
    first, known = np.cumsum(size) - size, size > 0
    found = np.full(count, np.nan)
    low, high = (ordered[(first + place)[known]] for place in ((size - 1) // 2, size // 2))
    found[known] = np.where(np.isnan(ordered[(first + size - 1)[known]]), np.nan, (low + high) / 2)
    return found


def _told(evidence: Evidence, row: int, columns: Ints, excess: dict[str, float]) -> dict[str, float]:
    """Adds what only the table `steps` tells: the loader's time, and what parts compute, sleep and waiting for a CPU."""
    if evidence.activity.device:
        return excess
    input_ms = _step_excess(evidence, "input_ms", row, columns)
    shown = excess.get("input", 0.0)
    if np.isfinite(input_ms) and input_ms > shown:
        excess = {**excess, "input": input_ms, "own": excess.get("own", 0.0) - (input_ms - max(shown, 0.0))}
    cpu = _step_excess(evidence, "thread_cpu_ms", row, columns)
    if np.isfinite(cpu) and "own" in excess:
        idle = max(excess["own"] - max(cpu, 0.0), 0.0)
        delayed = min(max(float(np.nan_to_num(_step_excess(evidence, "thread_delay_ms", row, columns))), 0.0), idle)
        worked = excess["own"] - idle
        own = worked + delayed if worked > _WORKED * delayed else worked
        excess = {**excess, "own": own, "cpu_delay": excess["own"] - own - (idle - delayed), "host_stall": idle - delayed}
    return excess


def _step_excess(evidence: Evidence, name: str, row: int, columns: Ints) -> float:
    return _over_others(evidence.steps.column(name)[:, columns], row)


def _over_others(values: Reals, row: int) -> float:
    rest = np.delete(values, row, axis=0)
    if not np.isfinite(values[row]).any() or not np.isfinite(rest).any():
        return float("nan")
    return float(np.nanmedian(values[row] - np.nanmedian(rest, axis=0)))
