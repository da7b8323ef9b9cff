# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Takes up what the shipper beside the rank measured of the collector's clock, as rows of `clocks`."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from dtscope_jupyter.agent import clock
from dtscope_jupyter.transport.clock import load

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent

_PERIOD_S = 2.0


class Reference:
    """Looks every two seconds; a new measurement is a new row."""

    def __init__(self, agent: Agent) -> None:
        """Nothing is measured yet."""
        self._agent = agent
        self._due = 0.0
        self._seen = 0

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Adds a row where there is something new; `final` looks at once."""
        if not final and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _PERIOD_S
        found = load(self._agent.config.folder)
        if found is None or found.at_ns == self._seen:
            return
        self._seen = found.at_ns
        offset = found.offset_ns - clock.OFFSET_NS
        when = found.at_ns + clock.OFFSET_NS
        row = (socket.gethostname(), clock.boot_id(), when, clock.OFFSET_NS, offset, found.uncertainty_ns, "round_trip")
        self._agent.recorder.add("clocks", row)
