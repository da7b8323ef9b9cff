# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Makes rows of `gradients`, and a step's norm and count, of what the hooks left; on the writing thread."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtscope_jupyter.agent.clock import OFFSET_NS, now
from dtscope_jupyter.agent.progress import HELD

if TYPE_CHECKING:
    from collections import deque

    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.readings import Reading
    from dtscope_jupyter.agent.steps import Steps

_PATIENCE_NS = 10**9


@dataclass(slots=True)
class Norms:
    """Norms of some parameters, and of these what is not finite, where counted."""

    numbers: list[int | None]
    norms: Reading
    counts: Reading | None
    scale: float = 1.0

    def values(self) -> list[float]:
        """The norms themselves."""
        return [value * self.scale for value in self.norms.values()]


@dataclass(slots=True)
class Part:
    """What one segment of a step left."""

    step: int = 0
    time: int = 0
    ready: list[int] = field(default_factory=list)
    locals: list[Norms] = field(default_factory=list)
    synced: list[Norms] = field(default_factory=list)
    flat: list[Reading] = field(default_factory=list)
    checks: list[Reading] = field(default_factory=list)
    glances: list[Reading] = field(default_factory=list)

    def done(self) -> bool:
        """Whether all numbers have reached the host."""
        return all(r.done() for r in self.flat + self.checks + self.glances) and all(
            n.norms.done() and (n.counts is None or n.counts.done()) for n in self.locals + self.synced
        )


@dataclass(slots=True)
class _Cells:
    """A step's columns by parameter number; `checked` counts buckets with something not finite, at least so many values."""

    ready: dict[int, int] = field(default_factory=dict)
    local: dict[int, float] = field(default_factory=dict)
    synced: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    squares: float = 0.0
    flat: bool = False
    checked: int | None = None


class GradientRows:
    """Gathers the parts of each step and writes it when the next has begun."""

    def __init__(self, agent: Agent, steps: Steps) -> None:
        """Nothing is gathered yet."""
        self._agent = agent
        self._steps = steps
        self._open: dict[int, _Cells] = {}

    def take(self, parts: deque[Part], *, final: bool) -> bool:
        """Takes the parts whose numbers have arrived; True where one was not finite."""
        bad = False
        while parts and (parts[0].done() or final or now() - parts[0].time > _PATIENCE_NS):
            bad |= self._add(parts.popleft())
        current = self._agent.progress.step
        oldest = parts[0].step if parts else current
        for step in [step for step in self._open if final or step < min(current, oldest)]:
            self._write(step, self._open.pop(step))
        return bad

    def gathers(self, step: int) -> bool:
        """Whether the step is not written yet."""
        return step in self._open

    def _add(self, part: Part) -> bool:
        if not part.done():
            return False
        step = part.step if part.step != HELD else self._agent.progress.place(part.time - 1)
        cells = self._open.setdefault(step, _Cells())
        cells.ready |= {number: time for number, time in enumerate(part.ready) if time}
        bad = False
        for norms in part.locals:
            bad |= _put(cells.local, norms)
            _count(cells.counts, norms)
        for norms in part.synced:
            bad |= _put(cells.synced, norms)
        for reading in part.checks:
            cells.checked = (cells.checked or 0) + sum(not math.isfinite(value) for value in reading.values())
        for reading in part.glances:
            if not all(map(math.isfinite, reading.values())):
                cells.checked, bad = (cells.checked or 0) + 1, True
        for reading in part.flat:
            cells.flat = True
            cells.squares += sum(reading.squares())
        return bad or not math.isfinite(cells.squares)

    def _write(self, step: int, cells: _Cells) -> None:
        if cells.flat:
            self._steps.norms[step] = math.sqrt(cells.squares) if cells.squares >= 0 else cells.squares
        if cells.local:
            self._steps.nonfinite[step] = sum(cells.counts.values())
        elif cells.checked is not None:
            self._steps.nonfinite[step] = cells.checked
        for number in sorted(cells.ready.keys() | cells.local.keys() | cells.synced.keys()):
            time = cells.ready.get(number)
            row = (
                step,
                number,
                time + OFFSET_NS if time else None,
                cells.local.get(number),
                cells.synced.get(number),
                cells.counts.get(number),
            )
            self._agent.recorder.add("gradients", row)


def _put(into: dict[int, float], norms: Norms) -> bool:
    values = norms.values()
    into |= {number: value for number, value in zip(norms.numbers, values, strict=True) if number is not None}
    return not all(map(math.isfinite, values))


def _count(into: dict[int, int], norms: Norms) -> None:
    """Zero where the norm is finite; unknown where it is not and nobody counted."""
    if norms.counts is not None:
        counts: list[float | None] = [*norms.counts.values()]
    else:
        counts = [0 if math.isfinite(value) else None for value in norms.norms.values()]
    into |= {number: int(count) for number, count in zip(norms.numbers, counts, strict=True) if number is not None and count is not None}
