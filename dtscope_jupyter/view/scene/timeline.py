# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One step on every rank: when it computed, when it communicated under compute, when communication was exposed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis.activity import Activity
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.intervals import Set, difference, intersection, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.analysis.activity import Events
    from dtscope_jupyter.analysis.clocks import Offsets


@dataclass(frozen=True, slots=True)
class Lane:
    """One rank in the window; sets of nanoseconds since its origin. `exact` where a profiler saw it."""

    rank: int
    compute: Set
    overlapped: Set
    exposed: Set
    exact: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes on one clock; `step` is None where the rows belong to no step."""

    step: int | None
    origin_ns: int
    length_ns: int
    lanes: list[Lane]


def on_one_clock(activity: Activity, clocks: Offsets) -> Activity:
    """The activity with the times of every rank corrected."""
    parts = (replace(p, start=p.start + clocks.of(p.rank), end=p.end + clocks.of(p.rank)) for p in (activity.comm, activity.compute))
    return Activity(*parts)


def timeline(activity: Activity, step: int | None, ranks: Sequence[int]) -> Timeline | None:
    """The ranks from the first to the last moment of a step; None where nothing with times was recorded in it.

    All activity of the window is shown, also of the step before or after, so that what looks idle was idle.
    """
    window = _window(activity, step)
    if window is None:
        return None
    lanes = [_lane(activity, rank, window) for rank in ranks]
    return Timeline(step, window[0], window[1] - window[0], lanes)


def _window(activity: Activity, step: int | None) -> tuple[int, int] | None:
    parts = [part.where(part.step == (NONE if step is None else step)) for part in (activity.comm, activity.compute)]
    if not sum(map(len, parts)):
        return None
    start, end = min(int(p.start.min()) for p in parts if len(p)), max(int(p.end.max()) for p in parts if len(p))
    return (start, end) if end > start else None


def _lane(activity: Activity, rank: int, window: tuple[int, int]) -> Lane:
    comm, compute = (part.where(part.rank == rank) for part in (activity.comm, activity.compute))
    exact = bool(((comm.source == 0).any() or not len(comm)) and (compute.source == 0).any())
    talking, busy = _clipped(comm, window), _clipped(compute, window)
    return Lane(rank, busy, intersection(talking, busy), difference(talking, busy), exact)


def _clipped(events: Events, window: tuple[int, int]) -> Set:
    starts, ends = np.maximum(events.start, window[0]), np.minimum(events.end, window[1])
    return union(starts - window[0], ends - window[0])
