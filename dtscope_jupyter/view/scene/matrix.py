# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A quantity as rank x step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Reals: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Matrix:
    """`values[i, j]` is of rank `ranks[i]` in step `steps[j]`, NaN where unknown; `exact` where a profiler saw it."""

    ranks: list[int]
    steps: list[int]
    values: Reals
    exact: Flags

    def pooled(self, rows: int, columns: int) -> Pooled:
        """At most so many rows and columns: the largest of neighbours, so that what is dear does not vanish."""
        down, across = -(-len(self.ranks) // max(rows, 1)), -(-len(self.steps) // max(columns, 1))
        down, across = max(down, 1), max(across, 1)
        values = _pool(self.values, down, across, np.nan)
        return Pooled(values, _pool(self.exact.astype(np.float64), down, across, 0.0) > 0, down, across)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A matrix made smaller: each cell the largest of `down` ranks and `across` steps."""

    values: Reals
    exact: Flags
    down: int
    across: int


def matrix(frame: pd.DataFrame, column: str) -> Matrix:
    """A column of a frame by rank and step (as `analysis.overlap(by=["rank", "step"])`) as rank x step."""
    ranks, row = np.unique(frame["rank"].to_numpy(np.int64), return_inverse=True)
    steps, at = np.unique(frame["step"].to_numpy(np.int64), return_inverse=True)
    values = np.full((len(ranks), len(steps)), np.nan)
    values[row, at] = frame[column].to_numpy(np.float64, na_value=np.nan)
    exact = np.zeros(values.shape, dtype=bool)
    exact[row, at] = (frame["source"] == "profiler").to_numpy(bool)
    return Matrix(ranks.tolist(), steps.tolist(), values, exact)


def _pool(values: Reals, down: int, across: int, empty: float) -> Reals:
    rows, columns = -(-values.shape[0] // down), -(-values.shape[1] // across)
    padded = np.full((rows * down, columns * across), empty)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(rows, down, columns, across)
    least = np.where(np.isnan(blocks), -np.inf, blocks).max(axis=(1, 3), initial=-np.inf)
    return np.where(np.isneginf(least), np.nan, least)
