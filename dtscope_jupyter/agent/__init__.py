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
    """Observes a model (and its optimizer) from a script: the explicit form of DTRAINSCOPE_ENABLE=1, beside which it adds nothing.

    Call it on every rank of a job (torchrun or the like), after `init_process_group` and before the first step; from there on the
    rank records to a new run in DTRAINSCOPE_LOG_DIR, or in ./dtscope-runs where that is not set, and rank 0 logs which. Called earlier,
    it takes effect when `torch.distributed.init_process_group` is called. Where the rank is observed already it only names the model and
    the optimizer, for programs in which they can't be found by type. Outside of a job it logs one line and does nothing.
    """
    agent = armed()
    if agent is not None:
        agent.watch(model, optimizer)
    elif _agent is None:
        from dtscope_jupyter.agent import watching

        watching.watch(model, optimizer)
