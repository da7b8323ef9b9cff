# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What both callbacks share: the options of a recording, and how a rank whose process group is made joins it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger("dtscope_jupyter")


def settings(directory: str | Path, collect: Iterable[str] | None, budget: float | str, disk: int | str) -> dict[str, str]:
    """The options as the variables that a rank reads; `directory` is that of the caller."""
    chosen = {} if collect is None else {"DTRAINSCOPE_COLLECT": ",".join(collect)}
    folder = str(Path(directory).expanduser().absolute())
    return {"DTRAINSCOPE_LOG_DIR": folder, "DTRAINSCOPE_BUDGET": str(budget), "DTRAINSCOPE_DISK": str(disk), **chosen}


def join(variables: dict[str, str], name: str) -> bool:
    """Has this rank record, and rank 0 say where; False where somebody else sees to that, or it can't (which is logged)."""
    import torch.distributed as dist

    from dtscope_jupyter import agent

    if agent.armed() is not None:
        return False
    if not (dist.is_available() and dist.is_initialized()):
        _log.warning("dtscope: nothing is recorded: training runs in one process without torch.distributed; give it two devices or workers")
        return False
    from dtscope_jupyter.agent import enlist

    os.environ.update(variables)
    enlist.enlist(name)
    current = agent.armed()
    if current is not None and current.config.rank == 0:
        run = current.config.folder.parent
        _log.warning("dtscope: records to %s; `dtscope report %s` says what was found, `%%dtscope attach %s` shows it live", run, run, run)
    return current is not None
