# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""`watch` where nothing is armed: arms the rank, now or once its process group is made, then names what to observe."""

from __future__ import annotations

import atexit
import logging
import os
from functools import cache
from typing import TYPE_CHECKING

import torch.distributed as dist

from dtscope_jupyter import agent

if TYPE_CHECKING:
    from pathlib import Path

    import torch

_log = logging.getLogger("dtscope_jupyter")
_named: list[tuple[torch.nn.Module, torch.optim.Optimizer | None]] = []


def watch(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Does nothing in a child of a rank; outside of a job it logs one line, once."""
    made = dist.is_available() and dist.is_initialized()
    if not made and "RANK" not in os.environ:
        _tell("dtscope: watch records nothing here: RANK is not set; start the script with torchrun, or the cell with %%dtscope profile")
        return
    from dtscope_jupyter.agent import autostart, enlist

    if autostart.is_child():
        return
    _named.append((model, optimizer))
    if made:
        enlist.enlist()
    elif len(_named) == 1:
        atexit.register(_never)


def enlisted(run: Path | None) -> None:
    """The rank records to `run`, or can't: hands on what was named, and has rank 0 say where that is."""
    atexit.unregister(_never)
    current, named = agent.armed(), tuple(_named)
    _named.clear()
    if current is None or run is None or not named:
        return
    for model, optimizer in named:
        current.watch(model, optimizer)
    if current.config.rank == 0:  # a warning, as Python shows nothing less of a logger that nobody has set up
        _log.warning("dtscope: records to %s; `dtscope report %s` says what was found, `%%dtscope attach %s` shows it live", run, run, run)


def _never() -> None:
    _tell("dtscope: watch recorded nothing: no init_process_group came after it; call watch after init_process_group, on every rank")


@cache
def _tell(line: str) -> None:
    """Once each."""
    _log.warning(line)
