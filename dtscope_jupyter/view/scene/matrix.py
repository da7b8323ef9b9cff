# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A quantity as rank x step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

_HIGH, _FLOOR, _LEAST = 0.97, 0.1, 0.01
_SEVERAL, _ROUNDING = 4, 1e-9
_NICE = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)

Reals: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Matrix:
    """`values[i, j]` is of rank `ranks[i]` in step `steps[j]`, NaN where unknown.

    `exact` where a profiler saw it; `estimated` where the rank timed no collective and only its exposed time is known.
    """

    ranks: list[int]
    steps: list[int]
    values: Reals
    exact: Flags
    estimated: Flags

    @property
    def timed(self) -> Flags:
        """Cells of which more is known than an estimate."""
        timed: Flags = ~np.isnan(self.values) & ~self.estimated
        return timed

    @property
    def partly(self) -> bool:
        """Whether some steps have a timed cell and others have none."""
        steps = self.timed.any(axis=0)
        return bool(steps.any() and not steps.all())

    @property
    def best(self) -> Flags:
        """Cells to be marked as better known than the others: the timed ones beside estimates, else the profiled ones."""
        return self.timed if self.estimated.any() else self.exact

    def pooled(self, rows: int, columns: int) -> Pooled:
        """At most so many rows and columns: the largest of neighbours, so that what is dear does not vanish."""
        down, across = -(-len(self.ranks) // max(rows, 1)), -(-len(self.steps) // max(columns, 1))
        down, across = max(down, 1), max(across, 1)
        values = _pool(self.values, down, across, np.nan)
        return Pooled(values, _pool(self.best.astype(np.float64), down, across, 0.0) > 0, down, across)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A matrix made smaller: each cell the largest of `down` ranks and `across` steps; `best` where one of them is."""

    values: Reals
    best: Flags
    down: int
    across: int


def matrix(frame: pd.DataFrame, column: str) -> Matrix:
    """A column of a frame by rank and step (as `analysis.overlap(by=["rank", "step"])`) as rank x step."""
    ranks, row = np.unique(frame["rank"].to_numpy(np.int64), return_inverse=True)
    steps, at = np.unique(frame["step"].to_numpy(np.int64), return_inverse=True)
    values = np.full((len(ranks), len(steps)), np.nan)
    values[row, at] = frame[column].to_numpy(np.float64, na_value=np.nan)
    exact, estimated = np.zeros(values.shape, dtype=bool), np.zeros(values.shape, dtype=bool)
    exact[row, at] = (frame["source"] == "profiler").to_numpy(bool)
    estimated[row, at] = (frame["source"] == "estimate").to_numpy(bool)
    return Matrix(ranks.tolist(), steps.tolist(), values, exact, estimated)


def _pool(values: Reals, down: int, across: int, empty: float) -> Reals:
    rows, columns = -(-values.shape[0] // down), -(-values.shape[1] // across)
    padded = np.full((rows * down, columns * across), empty)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(rows, down, columns, across)
    least = np.where(np.isnan(blocks), -np.inf, blocks).max(axis=(1, 3), initial=-np.inf)
    return np.where(np.isneginf(least), np.nan, least)


def strong_end(values: Reals, step_ms: float) -> float:
    """Where the ramp of costs ends: a high value of the cells, and at least a tenth of a step, rounded up.

    The high value is the 97 % quantile; of fewer known steps (the last axis) one step's share of the cells may lie beyond it, so
    that a warm-up does not pale all other steps. The live map does the same.
    """
    known = np.sort(values[np.isfinite(values)])
    steps = round(values.shape[-1] * len(known) / max(values.size, 1))
    share = min(_HIGH, 1 - 1 / steps) if steps >= _SEVERAL else _HIGH
    high = float(known[max(math.ceil(share * len(known) - _ROUNDING) - 1, 0)]) if len(known) else 0.0
    return nice(max(high, _FLOOR * step_ms if step_ms > 0 else 0.0, _LEAST))


def nice(value: float) -> float:
    """The next round number that is not smaller."""
    power = 10.0 ** math.floor(math.log10(value))
    return float(f"{next(n for n in _NICE if value <= n * power * (1 + 1e-9)) * power:.6g}")
