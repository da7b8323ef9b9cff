# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""When the phases of recorded steps were, as the rank noted them.

forward = the step's start to its first gradient; backward = first gradient to the end of the last backward; optimizer = its
outermost step; what lies between belongs to no phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter import intervals
from dtscope_jupyter.analysis.columns import NONE, Ints, ints

if TYPE_CHECKING:
    import pyarrow as pa

    from dtscope_jupyter.analysis.lines import Axis

PHASES = ("forward", "backward", "optimizer")
_EDGES = {
    "forward": ("start_ns", "backward_start_ns"),
    "backward": ("backward_start_ns", "backward_end_ns"),
    "optimizer": ("optimizer_start_ns", "optimizer_end_ns"),
}


def split(covered: intervals.Set, axis: Axis, steps: pa.Table) -> tuple[intervals.Set, Ints]:
    """The pieces of a set that lie in each phase, and each piece's phase, -1 where none; line i of the axis is row i of `steps`."""
    windows = [axis.union(*_window(steps, *_EDGES[name])) for name in PHASES]
    parts = [intervals.intersection(covered, window) for window in windows]
    edges = tuple(np.concatenate(both) for both in zip(*windows, strict=True))
    parts.append(intervals.difference(covered, intervals.union(*edges)))
    codes = [np.full(len(part[0]), code, np.int64) for code, part in zip((0, 1, 2, -1), parts, strict=True)]
    return (np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])), np.concatenate(codes)


def _window(steps: pa.Table, first: str, last: str) -> tuple[Ints, Ints, Ints]:
    """Row, start and end of a phase in the steps of which both are known, within the step."""
    start, end = (np.maximum(ints(steps, name), ints(steps, "start_ns")) for name in (first, last))
    known = (ints(steps, first) != NONE) & (ints(steps, last) != NONE)
    row = np.flatnonzero(known)
    return row, start[row], np.minimum(end, ints(steps, "end_ns"))[row]
