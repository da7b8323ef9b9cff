# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Whether each rank lives: from its rank.json, whose modification time is its heartbeat."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from dtscope_jupyter import rundir

SILENT_S = 5.0
"""A rank whose agent wrote no heartbeat for so long is silent: stopped, or its interpreter is held."""


def states(path: Path, ranks: list[int]) -> dict[str, str]:
    """running, silent or exited, by rank as text; ranks without rank.json are left out."""
    host = socket.gethostname()
    found = {str(rank): _state(rundir.Attempt(path, 0).rank_path(rank) / "rank.json", host) for rank in ranks}
    return {rank: state for rank, state in found.items() if state}


def _state(file: Path, host: str) -> str:
    try:
        age = time.time() - file.stat().st_mtime
    except OSError:
        return ""
    if age < SILENT_S:
        return "running"
    identity = rundir.read_json(file)
    return "exited" if _gone(identity, host) else "silent"


def _gone(identity: dict[str, Any], host: str) -> bool:
    """Whether the process has ended, as far as this host can tell; ranks of other hosts are only silent."""
    pid = identity.get("pid")
    return identity.get("host") == host and isinstance(pid, int) and not Path(f"/proc/{pid}").exists()
