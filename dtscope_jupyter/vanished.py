# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that ended without a word: a signal or os._exit ended them, as far as this host can tell for sure."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import process, rundir

if TYPE_CHECKING:
    from collections.abc import Collection

NAME = "vanished"
"""Name of such a note of kind exit."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def notes(attempt: rundir.Attempt, said: Collection[int]) -> list[dict[str, Any]]:
    """Rows of `notes`, kind exit, one for each rank that was to say how it ends, did not and is gone; `said` are those that did.

    The time is that of the rank's last heartbeat. Ranks of other hosts, of other containers and of older releases are left out:
    nothing sure is known of these.
    """
    return [row for rank in attempt.ranks() if rank not in said and (row := _note(attempt.rank_path(rank) / "rank.json", rank))]


def _note(file: Path, rank: int) -> dict[str, Any] | None:
    identity = rundir.read_json(file)
    if not (identity.get("says_end") and _is_gone(identity)):
        return None
    try:
        beat = file.stat().st_mtime_ns
    except OSError:
        return None
    return {"rank": rank, "kind": "exit", "name": NAME, "time_ns": beat, "text": "ended without a word: by a signal, or by os._exit"}


def _is_gone(identity: dict[str, Any]) -> bool:
    if identity.get("host") != socket.gethostname():
        return False
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return False
    pid, start, where = identity.get("pid"), identity.get("started"), identity.get("pid_namespace")
    if identity.get("boot_id") != boot or where is None or where != process.namespace():
        return False
    return isinstance(pid, int) and isinstance(start, int) and process.has_ended(pid, start)
