# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""When a trace's steps, backward passes and optimizer steps were, and which of them a time belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter import intervals

if TYPE_CHECKING:
    from dtscope_jupyter.ingest.columns import Bools, Names, Spans
    from dtscope_jupyter.intervals import Ints, Set

_MARK = "ProfilerStep#"
_STEP = re.compile(_MARK + r"(\d{1,15})")
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step#"
_ENGINE_GAP_NS = 200_000
PHASES = ("forward", "backward", "optimizer")
FORWARD, BACKWARD, OPTIMIZER = 0, 1, 2
NOWHERE = -1


@dataclass(slots=True)
class Timeline:
    """Steps by start; backward passes and optimizer steps as interval sets. All in ns since the trace's base."""

    step: Ints
    start: Ints
    end: Ints
    backward: Set
    optimizer: Set
    whole: bool

    def steps_at(self, times: Ints) -> Ints:
        """The step whose span covers each time, NOWHERE outside."""
        place = _place(self.start, self.end, times)
        return np.where(place < 0, NOWHERE, self.step[place]) if len(self.step) else place

    def phases_at(self, times: Ints) -> Ints:
        """Code into PHASES: inside an optimizer step; inside backward; in a step before its first backward; else NOWHERE."""
        place = _place(self.start, self.end, times)
        first = np.append(self._first_backward(), 0)
        phase = np.where((place >= 0) & (times < first[place]), FORWARD, NOWHERE)
        phase[_place(*self.backward, times) >= 0] = BACKWARD
        phase[_place(*self.optimizer, times) >= 0] = OPTIMIZER
        return phase

    def within(self, which: Set) -> tuple[Ints, Ints]:
        """First start and last end of the intervals of `which` that begin in each step; NOWHERE for none."""
        low = np.searchsorted(which[0], self.start)
        high = np.searchsorted(which[0], self.end)
        some = high > low
        starts, ends = np.append(which[0], 0), np.append(which[1], 0)
        return np.where(some, starts[np.minimum(low, len(starts) - 1)], NOWHERE), np.where(some, ends[high - 1], NOWHERE)

    def _first_backward(self) -> Ints:
        return self.within(self.backward)[0]


def timeline(names: Names, host: Spans, first_step: int | None) -> Timeline:
    """The timeline of a trace.

    Steps are ProfilerStep#N annotations, numbered N, or from `first_step` where given. Without any, the whole
    file is one step, `first_step` or 0. Backward is where autograd evaluates functions, gaps of its engine
    below 200 us included; optimizer is inside the annotations Optimizer.step#...
    """
    step, start, end = _steps(names, host)
    whole = not len(step)
    if whole and len(host):
        step, start, end = np.zeros(1, np.int64), host.start.min()[None], host.end.max()[None] + 1
    if first_step is not None and len(step):
        step = step - step[0] + first_step
    return Timeline(step, start, end, _closed(_named(names, host, _BACKWARD)), intervals.union(*_named(names, host, _OPTIMIZER)), whole)


def _steps(names: Names, host: Spans) -> tuple[Ints, Ints, Ints]:
    marks = ((name, code) for name, code in names.items() if name.startswith(_MARK))
    numbers = {code: int(match[1]) for name, code in marks if (match := _STEP.fullmatch(name))}
    rows = np.flatnonzero(_any_of(names, host, list(numbers)))
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    step = np.array([numbers[code] for code in host.name[rows].tolist()], np.int64)
    _, first = np.unique(step, return_index=True)
    rows, step = rows[np.sort(first)], step[np.sort(first)]
    return step, host.start[rows], host.end[rows]


def _named(names: Names, host: Spans, prefix: str) -> Set:
    rows = _any_of(names, host, [code for name, code in names.items() if name.startswith(prefix)])
    return host.start[rows], host.end[rows]


def _any_of(names: Names, host: Spans, codes: list[int]) -> Bools:
    wanted = np.zeros(len(names), bool)
    wanted[codes] = True
    found: Bools = wanted[host.name]
    return found


def _closed(spans: Set) -> Set:
    starts, ends = intervals.union(*spans)
    if not len(starts):
        return starts, ends
    apart = starts[1:] - ends[:-1] >= _ENGINE_GAP_NS
    return starts[np.append(True, apart)], ends[np.append(apart, True)]


def _place(starts: Ints, ends: Ints, times: Ints) -> Ints:
    """Which of the sorted, disjoint intervals covers each time; NOWHERE for none."""
    if not len(starts):
        return np.full(len(times), NOWHERE)
    place = np.searchsorted(starts, times, side="right") - 1
    return np.where((place >= 0) & (times < ends[place]), place, NOWHERE)
