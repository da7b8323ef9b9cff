# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The disk allowance: the nearer to its end, the fewer of the finest rows are kept; all losses are counted."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

_FINEST = ("spans", "gradient_tiles", "gradients")
_FINE = ("collectives", "host")
_PLENTY = 0.5
"""Below this share every row is kept."""
_COARSE_FROM = 0.9
"""From this share on, each halving of the room that is left quarters the steps that are kept: a run may go on for long."""
_RESERVE = 65_536
"""Bytes kept for the last notes, or a twentieth of a small allowance."""


class Thinning:
    """Decides which rows are still written; `used` is what has been written so far, in bytes."""

    def __init__(self, allowance: int) -> None:
        """`allowance` in bytes."""
        self.used = 0
        self.counts: Counter[str] = Counter()
        self._allowance = allowance
        self._for_rows = allowance - min(_RESERVE, allowance // 20)
        self._plenty = int(_PLENTY * self._for_rows)

    def keep(self, table: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows to write; whole steps are left out, the same on every rank (their first column is the step)."""
        if self.used < self._plenty or (every := self._every(table)) == 1:
            return rows
        kept = [row for row in rows if every and (row[0] or 0) % every == 0]
        self.counts[table] += len(rows) - len(kept)
        return kept

    def fits(self, table: str, rows: int, size: int) -> bool:
        """Whether a block of `size` bytes may still be written; if not, its rows count as left out."""
        fits = self.used + size <= (self._allowance if table == "notes" else self._for_rows)
        if not fits:
            self.counts[table] += rows
        return fits

    def _every(self, table: str) -> int:
        """Keep one step in so many; 0 for none."""
        if table == "notes":
            return int(self.used < self._allowance)
        share = self.used / self._for_rows
        if table in _FINEST:
            return _stage(share, ((_PLENTY, 1), (0.75, 8), (0.9, 64)))
        if table in _FINE:
            return _stage(share, ((0.75, 1), (0.9, 8), (0.98, 64)))
        return 1 if share < _COARSE_FROM else _halvings(share)


def _halvings(share: float) -> int:
    """One step in 1, 4, 16, ...; 0 where nothing more fits."""
    if share >= 1.0:
        return 0
    return 1 << 2 * int(math.log2((1.0 - _COARSE_FROM) / (1.0 - share)))


def _stage(share: float, stages: tuple[tuple[float, int], ...]) -> int:
    return next((every for limit, every in stages if share < limit), 0)
