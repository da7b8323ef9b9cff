# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The collectives of a step that its ranks waited for most, and who came last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis.columns import NONE, codes, ints

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.waits import Waits
    from dtscope_jupyter.intervals import Ints


@dataclass(frozen=True, slots=True)
class Call:
    """One collective through its ranks, times on one clock.

    `late_ms` is how long the last came after the one before it, `wait_ms` the longest wait, `lost_ms` the sum of waits.
    """

    starts: dict[int, int]
    last: int
    late_ms: float
    wait_ms: float
    lost_ms: float
    transfer_ms: float
    process_group: str
    seq: int | None
    operation: str
    bytes: int | None


def calls(found: Waits, step: int | None, most: int) -> list[Call]:
    """At most `most` collectives of the step, most waited for first; those of no step where it is None."""
    row_step = ints(found.rows, "step")
    chosen = np.flatnonzero(row_step == (NONE if step is None else step))
    if not len(chosen):
        return []
    lost = np.bincount(found.collective[chosen], found.wait[chosen], found.count)
    numbers = np.unique(found.collective[chosen])
    order = numbers[np.argsort(-lost[numbers], kind="stable")][:most]
    return [_call(found, np.flatnonzero(found.collective == number)) for number in order]


def _call(found: Waits, rows: Ints) -> Call:
    ranks, starts = ints(found.rows, "rank")[rows], found.start[rows]
    late = np.sort(starts)
    first = int(rows[0])
    seq, size = ints(found.rows, "seq")[first], ints(found.rows, "bytes")[first]
    return Call(
        starts=dict(sorted(zip(ranks.tolist(), starts.tolist(), strict=True))),
        last=int(found.last[first]),
        late_ms=float(late[-1] - late[-2]) / 1e6,
        wait_ms=float(found.wait[rows].max()) / 1e6,
        lost_ms=float(found.wait[rows].sum()) / 1e6,
        transfer_ms=float(found.transfer[first]) / 1e6,
        process_group=_text(found, "process_group", first),
        seq=None if seq == NONE else int(seq),
        operation=_text(found, "operation", first),
        bytes=None if size == NONE else int(size),
    )


def _text(found: Waits, column: str, row: int) -> str:
    code, names = codes(found.rows.slice(row, 1), column)
    return names[code[0]] if code[0] >= 0 else ""
