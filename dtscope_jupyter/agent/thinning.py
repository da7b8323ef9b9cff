# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The disk allowance: the nearer to its end, the fewer of the finest rows are kept; all losses are counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

_FINEST = ("spans", "gradient_tiles", "gradients")
_FINE = ("collectives", "host")
_COARSE_SHARE = 0.995


class Thinning:
    """Decides which rows are still written; `used` is what has been written so far, in bytes."""

    def __init__(self, allowance: int) -> None:
        """`allowance` in bytes."""
        self.used = 0
        self.counts: Counter[str] = Counter()
        self._allowance = allowance

    def keep(self, table: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows to write; whole steps are left out, the same on every rank (their first column is the step)."""
        every = self._every(table)
        if every == 1:
            return rows
        kept = [row for row in rows if every and (row[0] or 0) % every == 0]
        self.counts[table] += len(rows) - len(kept)
        return kept

    def _every(self, table: str) -> int:
        """Keep one step in so many; 0 for none."""
        share = self.used / self._allowance
        if table in _FINEST:
            return _stage(share, ((0.5, 1), (0.75, 8), (0.9, 64)))
        if table in _FINE:
            return _stage(share, ((0.75, 1), (0.9, 8), (0.98, 64)))
        return 1 if share < _COARSE_SHARE else 0


def _stage(share: float, stages: tuple[tuple[float, int], ...]) -> int:
    return next((every for limit, every in stages if share < limit), 0)
