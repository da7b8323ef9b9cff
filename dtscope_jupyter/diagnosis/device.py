# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Devices compared across ranks by their own samples: clock, throttling, and other work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis import columns

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints
    from dtscope_jupyter.diagnosis.evidence import Evidence

_SLOWER = 0.9
"""A device whose clock is below nine tenths of the others' is slow; models of one kind differ by less."""


def slower(evidence: Evidence, row: int) -> dict[str, Any]:
    """What shows that the rank's device is slower than the others'; {} where nothing does."""
    table = evidence.tables["devices"]
    rank, clock = columns.ints(table, "rank"), columns.reals(table, "clock_mhz")
    mine = rank == evidence.ranks[row]
    own, rest = _median(clock, mine), _median(clock, ~mine)
    told: dict[str, Any] = {}
    if own < _SLOWER * rest:
        told = {"clock_mhz": own, "clock_mhz_others": rest}
    throttle = sorted({text for text in np.array(table["throttle"].to_pylist(), dtype=object)[mine] if text})
    return told | ({"throttle": throttle} if told and throttle else {})


def _median(values: np.ndarray, chosen: Ints) -> float:
    known = values[chosen & np.isfinite(values) & (values > 0)]
    return float(np.median(known)) if len(known) else float("nan")
