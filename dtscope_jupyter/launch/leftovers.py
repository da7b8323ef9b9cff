# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Killing processes with what they would leave in /tmp: sockets of multiprocessing, which go only with a process that ends by itself.

A worker of a data loader has one as soon as it has sent a tensor.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FOLDER = "pymp-"


def kill_group(group: int) -> None:
    """Kills a process group whose leader nobody has reaped yet, so that its number means no other; it may be our own."""
    try:
        listening = _listening()
        if listening:
            _remove(_folders(members(group), listening))
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def kill(pids: Iterable[int]) -> None:
    """Kills processes of ours and removes the folders of their sockets."""
    pids = list(pids)
    try:
        _remove(_folders(pids, _listening()))
    finally:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _remove(folders: set[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def members(group: int, session: int | None = None) -> list[int]:
    """Pids of a process group; with `session` only where it is of that one."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):  # it has ended meanwhile
            theirs = place.read_text().rpartition(")")[2].split()[2:4]
            if int(theirs[0]) == group and session in (None, int(theirs[1])):
                found.append(int(place.parent.name))
    return found


def _folders(pids: Iterable[int], listening: dict[str, Path]) -> set[Path]:
    """Those of the folders in which these processes listen."""
    return {listening[inode] for pid in pids for inode in _sockets(pid) if inode in listening}


def _listening() -> dict[str, Path]:
    """Folder by inode of each socket."""
    with suppress(OSError):
        lines = [line.split(maxsplit=7) for line in Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()]
        paths = {line[6]: Path(line[7]).parent for line in lines if len(line) > 7}  # noqa: PLR2004 # the path is its eighth column
        return {inode: folder for inode, folder in paths.items() if folder.name.startswith(_FOLDER)}
    return {}


def _sockets(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found
