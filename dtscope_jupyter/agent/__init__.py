# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Inside a rank: `arm` installs the hooks that record its training. Imports torch only when armed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from dtscope_jupyter.agent.config import Config

if TYPE_CHECKING:
    import torch

    from dtscope_jupyter.agent.core import Agent

__all__ = ["Config", "arm", "armed", "log", "watch"]

_log = logging.getLogger(__name__)
_agent: Agent | None = None
_pid = 0


def arm(config: Config) -> Agent:
    """Installs the hooks, before the user's code; a second call in the process returns the first agent unless that has finished."""
    global _agent, _pid
    current = armed()
    if current is not None:
        return current
    from dtscope_jupyter.agent import assembly

    _agent, _pid = assembly.build(config), os.getpid()
    return _agent


def armed() -> Agent | None:
    """The agent of this process, or None: not armed, finished, or a child of a rank."""
    return _agent if _agent is not None and _pid == os.getpid() and not _agent.finished else None


def log(**scalars: float) -> None:
    """Records scalars on the current step, such as loss=loss.item(); does nothing outside of a rank that records."""
    agent = armed()
    if agent is not None and agent.recording:
        agent.log(scalars)


def watch(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Names the model (and optimizer) to observe, for programs in which they can't be found by type; harmless elsewhere."""
    agent = armed()
    if agent is not None:
        agent.watch(model, optimizer)
