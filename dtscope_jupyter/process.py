# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What Linux tells of one process, by /proc."""

from __future__ import annotations

import contextlib
import os
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter import rundir
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Process:
    """A process of this machine; what can't be read, since it is another user's or has ended, raises OSError."""

    def __init__(self, pid: int) -> None:
        """DtscopeError where there is none."""
        self.pid = pid
        self.proc = Path("/proc", str(pid))
        try:
            self.owner = self.proc.stat().st_uid
        except FileNotFoundError as error:
            raise DtscopeError(f"no process has pid {pid}: give the pid of a rank, as `ps` or rank.json tells it") from error

    @cached_property
    def name(self) -> str:
        """Its command."""
        return self._read("comm").strip()

    @cached_property
    def environment(self) -> dict[str, str]:
        """Its environment as it was started."""
        return dict(item.split("=", 1) for item in self._read("environ").split("\0") if "=" in item)

    @cached_property
    def maps(self) -> str:
        """Its mapped files."""
        return self._read("maps")

    @cached_property
    def python(self) -> tuple[int, ...] | None:
        """Major and minor version of its Python; None where it is none."""
        libraries = re.findall(r"/\S*libpython\S*|/\S*/lib/python3\.\d+/", self.maps)
        for name in [str((self.proc / "exe").readlink()), *libraries]:
            if found := re.search(r"python(3)\.(\d+)", name):
                return int(found[1]), int(found[2])
        return None

    @property
    def has_torch(self) -> bool:
        """Whether torch is loaded."""
        return "libtorch" in self.maps

    @property
    def prefix(self) -> Path | None:
        """The environment its packages are of."""
        found = re.search(r"(/\S*)/lib/python3\.\d+/site-packages/", self.maps)
        return Path(found[1]) if found else None

    @cached_property
    def rank_folder(self) -> Path | None:
        """The rank folder it writes."""
        for descriptor in (self.proc / "fd").iterdir():
            with contextlib.suppress(OSError):
                folder = descriptor.readlink().parent
                if folder.name.startswith("rank-") and rundir.is_run(folder.parent):
                    return folder
        return None

    def shares_files(self) -> bool:
        """Whether its file systems are ours."""
        return (self.proc / "ns" / "mnt").readlink() == Path("/proc/self/ns/mnt").readlink()

    def listening(self, *, children: bool = True) -> set[int]:
        """TCP ports on which it, or a child of it, listens."""
        import psutil

        ports: set[int] = set()
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            for member in [process, *(process.children(recursive=True) if children else [])]:
                ports |= {item.laddr.port for item in member.net_connections("tcp") if item.status == psutil.CONN_LISTEN}
        return ports

    def _read(self, name: str) -> str:
        return (self.proc / name).read_text(errors="replace")


def started(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None where there is none."""
    return int(found[19]) if (found := _stat(pid)) else None


def has_ended(pid: int, start: int) -> bool:
    """Whether the process that had this number and start has ended; its parent need not have taken note."""
    found = _stat(pid)
    return not found or int(found[19]) != start or found[0] in (b"Z", b"X")


def namespace() -> int | None:
    """Which processes our numbers are of; None where that can't be told."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 # runs in every rank
    except OSError:
        return None


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat from the state on, [] where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return []


def family(pid: int) -> Iterator[Process]:
    """A process, and those that it started, as far as they live; DtscopeError where there is none of that pid."""
    import psutil

    yield Process(pid)
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return
    for child in children:
        with contextlib.suppress(DtscopeError):
            yield Process(child.pid)
