# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a live rank: one JSON line each way over RANK_FOLDER/control.sock. Imports no torch.

Requests are {"command": NAME, ...}; every reply has "ok", and "error" (one line) where that is false.

    status              pid, step, phase, recording, collectors, cost_ratio
    profile steps=2     a profiler window from the next step on; the trace is written to the rank folder
    stacks              stacks of all threads -> stacks-NNN.txt; replies with "file"
    flight_recorder     -> flight_recorder-NNN.json, then .pkl with stacks; replies with "files"
    attach, detach      hooks in, hooks out
    budget value=0.02   the share of step time that observing may cost
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import time
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import rundir
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOCKET = "control.sock"
MAX_LINE = 65_536


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """The socket's path through a directory descriptor, as Unix sockets allow no more than 108 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def ask(folder: Path, request: dict[str, Any], timeout: float = 2.0) -> dict[str, Any]:
    """The rank's reply; DtscopeError where no rank listens in `folder` or it doesn't answer within `timeout` seconds.

    Stacks of a rank that can't answer, since something holds the interpreter's lock, are had by a signal.
    """
    try:
        with short_path(folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            _check_socket(path)
            connection.connect(path)
            _check_peer(connection, folder)
            connection.sendall(json.dumps(request).encode() + b"\n")
            return _reply(connection)
    except TimeoutError as error:
        if request.get("command") == "stacks":
            return _stacks_by_signal(folder)
        raise DtscopeError(
            f"{folder.name} did not answer within {timeout:g} s; its process is stuck or stopped, take its stacks"
        ) from error
    except (OSError, ValueError) as error:
        raise DtscopeError(f"no live rank listens in {str(folder)!r} ({error}); is the job still running, on this host?") from error


def _check_socket(path: str) -> None:
    """A link in its place could lead to any socket of the machine."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise OSError(errno.ENOTSOCK, f"{SOCKET} is no socket; somebody else may have put it there")


def _check_peer(connection: socket.socket, folder: Path) -> None:
    """Who answers is us or, where we are root, who owns the folder."""
    peer = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], "little")
    if peer != os.geteuid() and (os.geteuid() != 0 or peer != folder.stat().st_uid):
        raise OSError(errno.EPERM, f"user {peer} listens there; it is not the one whose run this is")


def _reply(connection: socket.socket) -> dict[str, Any]:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(MAX_LINE)
        if not part or len(line) > MAX_LINE:
            break
        line += part
    reply = json.loads(line)
    if not isinstance(reply, dict):
        raise ValueError("not an object")  # noqa: TRY004 # as any reply that is no JSON object
    return reply


def _stacks_by_signal(folder: Path) -> dict[str, Any]:
    identity = rundir.read_json(folder / "rank.json")
    pid, number, file = identity.get("pid"), identity.get("stack_signal"), folder / str(identity.get("stack_file"))
    if not isinstance(pid, int) or not isinstance(number, int) or not file.is_file() or not _is(pid, identity):
        raise DtscopeError(f"{folder.name} does not answer and can't be signalled; it was armed without a stack signal or has ended")
    before = file.stat().st_size
    os.kill(pid, number)
    deadline = time.monotonic() + 2
    while file.stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.01)
    return {"ok": file.stat().st_size > before, "file": file.name, "by": "signal"}


def _is(pid: int, identity: dict[str, Any]) -> bool:
    """Whether the process is still the rank, not a later one with its number."""
    return identity.get("started") == started(pid) and identity.get("host") == socket.gethostname()
