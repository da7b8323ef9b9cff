# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What all collectors of a rank have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent


class Collector:
    """One source of rows: `start` installs its hooks, `stop` takes them off, both idempotent; `drain` makes rows."""

    name = ""

    def __init__(self, agent: Agent) -> None:
        """Installs nothing yet."""
        self.agent = agent
        self.on = False

    def start(self) -> None:
        """Installs the hooks."""

    def stop(self) -> None:
        """Takes the hooks off, or makes them pass through."""

    def settle(self) -> None:
        """The hooks of all are off: waits, shortly, for what they have begun to see."""

    def drain(self, final: bool) -> None:  # noqa: FBT001
        """Turns raw events into rows, on the writing thread; `final` with the last call."""
