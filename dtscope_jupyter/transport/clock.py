# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The host's monotonic clock against the collector's, by the round trip that took least time.

A question sent at `s` and answered at `g` on our clock was with the collector, at its times `r` and `a`, in between:
the offset is ((r - s) + (a - g)) / 2 and can't be wrong by more than half of the round trip, ((g - s) - (a - r)) / 2
(RFC 5905, section 8). An older round trip counts with what clocks may have drifted since.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from dtscope_jupyter import rundir

if TYPE_CHECKING:
    from pathlib import Path

_DRIFT = 50e-6
_KEEP = 64
FILE = "clock.json"


class Offset(NamedTuple):
    """`offset_ns` is added to our monotonic clock to give the collector's time; true within `uncertainty_ns`."""

    offset_ns: int
    uncertainty_ns: int
    at_ns: int


class Estimate:
    """The round trips of late."""

    def __init__(self) -> None:
        """Without any yet."""
        self._trips: deque[Offset] = deque(maxlen=_KEEP)

    def add(self, sent: int, received: int, replied: int, got: int) -> None:
        """One round trip, ns: `sent` and `got` on our monotonic clock, the others on the collector's."""
        offset = ((received - sent) + (replied - got)) // 2
        self._trips.append(Offset(offset, max(0, (got - sent) - (replied - received)) // 2 + 1, got))

    def best(self, now: int | None = None) -> Offset | None:
        """The offset that is surest at `now` (monotonic, ns); None before the first round trip."""
        now = time.perf_counter_ns() if now is None else now
        aged = [trip._replace(uncertainty_ns=trip.uncertainty_ns + int(_DRIFT * (now - trip.at_ns))) for trip in self._trips]
        return min(aged, key=lambda trip: trip.uncertainty_ns, default=None)


def save(folder: Path, best: Offset) -> None:
    """Leaves the offset in the rank folder, where the rank takes it up."""
    rundir.write_json(folder / FILE, best._asdict())


def load(folder: Path) -> Offset | None:
    """What the shipper of this rank found last; None where there is none."""
    found = rundir.read_json(folder / FILE)
    try:
        return Offset(*(int(found[name]) for name in Offset._fields))
    except (KeyError, TypeError, ValueError):
        return None
