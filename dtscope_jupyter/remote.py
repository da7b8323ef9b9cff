# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Arms ranks that were started without us, by sys.remote_exec of Python 3.14 or newer."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

OLDEST = (3, 14)
_PATIENCE_S = 15.0
_POLL_S = 0.05
_SCRIPT = """\
import os, threading
os.environ.setdefault("DTRAINSCOPE_LOG_DIR", {folder!r})
os.environ.setdefault("DTRAINSCOPE_ENABLE", "attach")
from dtscope_jupyter.agent import enlist
threading.Thread(target=enlist.enlist, name="dtscope-enlist", daemon=True).start()
"""


def script(into: Path) -> str:
    """What a rank is to run: it enlists in a run below `into`, armed but idle.

    From a thread of its own, since ranks wait for rank 0 there, which may itself be in a collective with them.
    """
    return _SCRIPT.format(folder=str(into.absolute()))


def obstacle(python: tuple[int, ...] | None) -> str:
    """Why a process of that Python can't be told anything from here; "" where it can."""
    ours, theirs = (".".join(map(str, version)) if version else "unknown" for version in (sys.version_info[:2], python))
    if python is None or python < OLDEST or sys.version_info < OLDEST:
        return f"sys.remote_exec needs Python 3.14 on both sides; the process has {theirs}, this one {ours}"
    return f"Python {theirs} there, {ours} here: sys.remote_exec needs the same" if python != sys.version_info[:2] else ""


def arm(processes: Iterable[Process], into: Path) -> Path | None:
    """Arms the ranks among processes and returns the folder of one of them; None where none is a rank. DtscopeError where they can't be."""
    ranks = [process for process in processes if "RANK" in process.environment and process.has_torch]
    for rank in ranks:
        if reason := obstacle(rank.python):
            raise DtscopeError(f"process {rank.pid} records no run, and {reason}: start it with DTRAINSCOPE_ENABLE=1 or =attach")
    if not ranks:
        return None
    with tempfile.TemporaryDirectory(prefix="dtscope-") as scratch:
        path = Path(scratch, "arm.py")
        path.write_text(script(into))
        for rank in ranks:
            _tell(rank, path)
        return _armed(ranks)


def _tell(rank: Process, path: Path) -> None:
    try:
        sys.remote_exec(rank.pid, os.fspath(path))  # type: ignore[attr-defined] # mypy is told of 3.11
    except (OSError, RuntimeError) as error:
        raise DtscopeError(f"process {rank.pid} can't be told to arm itself ({error}): %dtscope doctor {rank.pid} tells more") from error


def _armed(ranks: list[Process]) -> Path:
    """Waits until every rank has its folder."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        folders = [Process(rank.pid).rank_folder for rank in ranks]
        if folders[0] is not None and all(folders):
            return folders[0]
        time.sleep(_POLL_S)
    raise DtscopeError(
        f"process {ranks[0].pid} has not armed itself within {_PATIENCE_S:g} s: its output tells why, or it runs no Python code"
    )
