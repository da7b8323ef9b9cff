# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How late each rank was in each step, and in which steps that is a fault.

`arrival` = a rank's largest lateness among the collectives of a step; `deficit` = the others' median exposed
communication minus its own: a rank that all wait for waits for nobody. What would be won without it is the
lateness, as far as somebody paid for it; in steps whose collectives were not recorded one by one, the deficit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.diagnosis.steps import middle

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

PAID = 1.25
"""Waiting kernels slow the compute beside them, so that the exposed wait shows only part of a delay (H200: 0.8)."""
_CONFIRMS, _KNOWN = 0.5, 0.5
_FEW = 6
_EVEN = 0.05
"""Median deviation, as a share, of how late a device with more to do is: 0.005 to 0.03 on H200; of a host slow for a while 0.1 to 1."""
_TWO_ERRORS = 2 * 1.2533 * 1.4826
_SIGMAS_OF_HALF, _SIGMAS_OF_FEW = 1.349, 1.7
"""Width of the shortest half of normal samples, and the range of three of them, in standard deviations."""


@dataclass(frozen=True)
class Late:
    """Lateness matrices (R, S) in ms over all whole steps; NaN where unknown.

    What a rank lost because something else had its CPU is no fault of its program and is taken off, unless `starved`. `evenly` weighs
    each step alike however long it is, so that a rank that is always late by the same share shows in steps of very different length.
    """

    evidence: Evidence
    starved: bool = False
    evenly: bool = False

    @cached_property
    def arrival(self) -> Reals:
        """Largest lateness in the step."""
        return self._largest[0]

    @cached_property
    def at(self) -> Ints:
        """Row of `pairs` where that was, -1 where there is none."""
        return self._largest[1]

    @cached_property
    def deficit(self) -> Reals:
        """Exposed communication of the others (median) minus one's own."""
        exposed = self.evidence.steps.column("exposed_ms")
        return others(exposed) - exposed

    @cached_property
    def cost(self) -> Reals:
        """What would be won if the rank came with the others (may be negative: it came before them)."""
        arrival, deficit = self.arrival, self.deficit
        hidden = np.where(arrival > 0, deficit, np.minimum(arrival, 0))
        paid = np.where(arrival > deficit, np.minimum(arrival, PAID * deficit), hidden)
        cost = np.where(np.isnan(deficit), arrival, np.where(np.isnan(arrival), deficit, paid))
        return cost if self.starved else cost - self.delay

    def confirmed(self, row: int, columns: Ints) -> bool | None:
        """Whether the rank comes late to the collectives of these steps by half of what it costs; None where none were recorded."""
        arrival = self._arrivals[row, columns]
        if not np.isfinite(arrival).any():
            return None
        return float(np.nanmedian(arrival)) >= _CONFIRMS * float(np.nanmedian(self.cost[row, columns]))

    def even(self, row: int, columns: Ints) -> bool | None:
        """Whether the rank is late by the same time in each of these steps; None where they are too few to tell."""
        cost = self.cost[row, columns]
        cost = cost[np.isfinite(cost)]
        usual = float(np.median(cost)) if len(cost) else 0.0
        return float(np.median(np.abs(cost - usual))) <= _EVEN * usual if len(cost) >= _FEW else None

    def began(self, row: int, columns: Ints) -> bool:
        """Whether the rank is late by the same time in each of these steps, and before was not, by half of it.

        On devices, where exposed time is measured in every step, that does for collectives that were not recorded.
        """
        usable = np.flatnonzero(self.evidence.steps.usable)
        before = self.cost[row, usable[usable < columns[0]]]
        before = before[np.isfinite(before)]
        if len(before) < _FEW or not self.evidence.on_device or not self.even(row, columns):
            return False
        return float(np.median(before)) < _CONFIRMS * float(np.nanmedian(self.cost[row, columns]))

    @cached_property
    def _arrivals(self) -> Reals:
        """Sum of the lateness in the step: on one stream each collective shows only what was added since the last one."""
        pairs = self.evidence.pairs
        total = np.where(np.isfinite(self.arrival), 0.0, np.nan)
        chosen = np.flatnonzero(pairs.step >= 0)
        np.add.at(total, (pairs.rank[chosen], pairs.step[chosen]), np.maximum(pairs.late_ms[chosen], 0))
        return total

    @cached_property
    def delay(self) -> Reals:
        """How much longer than the others (median) the training thread waited for a CPU; 0 where that is unknown."""
        delay = self.evidence.steps.column("thread_delay_ms")
        return np.nan_to_num(delay - others(delay))

    @cached_property
    def net(self) -> Reals:
        """Cost minus the others' median cost where they are late too: what sets this rank apart."""
        shared = np.maximum(np.nan_to_num(others(self.cost)), 0)
        net = np.where(self.cost > 0, self.cost - shared, self.cost)
        return net * self.evidence.steps.typical_ms / middle(self.evidence.steps.duration, 0) if self.evenly else net

    @cached_property
    def known(self) -> Ints:
        """Usable steps in which somebody's lateness is known: under FSDP2 on a device those that were sampled alone."""
        return np.flatnonzero(self.evidence.steps.usable & np.isfinite(self.net).any(0))

    @cached_property
    def noise(self) -> float:
        """Standard deviation of `net` from step to step, median over ranks; NaN of one step.

        By the shortest half of a rank's steps, which faults in the other half don't touch, whatever their rhythm.
        """
        chosen = self.net[:, self.evidence.steps.usable]
        chosen = chosen[:, np.isfinite(chosen).mean(0) >= _KNOWN]
        chosen = np.sort(chosen[np.isfinite(chosen).all(1)], axis=1)
        count = chosen.shape[1]
        if count < 2 or not len(chosen):  # noqa: PLR2004 - no difference
            return float("nan")
        if count < _FEW:
            return float(np.median(chosen[:, -1] - chosen[:, 0])) / _SIGMAS_OF_FEW
        half = (count + 1) // 2
        return float(np.median((chosen[:, half - 1 :] - chosen[:, : count - half + 1]).min(1))) / _SIGMAS_OF_HALF

    @cached_property
    def _largest(self) -> tuple[Reals, Ints]:
        pairs, (ranks, steps) = self.evidence.pairs, self.evidence.steps.shape
        largest, at = np.full((ranks, steps), np.nan), np.full((ranks, steps), -1)
        chosen = np.flatnonzero(pairs.step >= 0)
        chosen = chosen[np.argsort(pairs.late_ms[chosen], kind="stable")]
        row, column = pairs.rank[chosen], pairs.step[chosen]
        largest[row, column], at[row, column] = pairs.late_ms[chosen], chosen
        return largest, at


def others(values: Reals) -> Reals:
    """For each entry of (R, S) the lower median over the other ranks of its step; NaN where there is no other."""
    ranks, _ = values.shape
    order = np.argsort(np.where(np.isnan(values), np.inf, values), axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    known = np.isfinite(values).sum(0)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(ranks)[:, None], order.shape), axis=0)
    index = np.maximum((known - 2) // 2, 0)[None, :]
    index = np.minimum(index + (place <= index), ranks - 1)
    return np.where(known[None, :] > 1, np.take_along_axis(ordered, index, axis=0), np.nan)


def stretch(net: Reals, threshold: float) -> tuple[int, int]:
    """The run of steps [first, end) in which a rank is late by more than about half the threshold throughout."""
    gain = np.clip(np.nan_to_num(net) - threshold / 2, -threshold, threshold)
    total = np.concatenate((np.zeros(1), np.cumsum(gain)))
    lowest = np.minimum.accumulate(total)
    end = int(np.argmax(total - lowest))
    return int(np.argmin(total[: end + 1])), end


def rhythm(steps: Ints) -> int:
    """The period of steps that come at even distances, three or more of them; 0 where they don't."""
    gaps = np.diff(steps)
    even = len(gaps) > 1 and gaps[0] > 1 and bool((gaps == gaps[0]).all())
    return int(gaps[0]) if even else 0


def surely(values: Reals) -> float:
    """The median less two of its standard errors, 1.2533 sigma / sqrt(n) with sigma by the median deviation; NaN where nothing is known.

    One far value counts as one.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan")
    usual = float(np.median(known))
    return usual - _TWO_ERRORS * float(np.median(np.abs(known - usual))) / float(np.sqrt(len(known)))


def positive(values: Reals) -> Bools:
    """Entries above zero, NaN is none."""
    return np.nan_to_num(values) > 0
