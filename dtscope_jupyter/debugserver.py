# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a rank that is not armed through torch's own debug server (torch.distributed.debug): stacks and Flight Recorder."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import rundir
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import Process, family

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 2.0
_LARGEST = 64 * 2**20
_RECORDERS = ("fr_trace_json", "dump_nccl_trace_json")


class DebugServer:
    """The worker server in one rank, on a port of this machine."""

    def __init__(self, process: Process, port: int, handlers: list[str]) -> None:
        """As `find` found it."""
        self.process = process
        self.port = port
        self.handlers = handlers

    def stacks(self) -> bytes:
        """The stacks of all its threads, as text."""
        return _post(self.port, "/handler/dump_traceback")

    def flight_recorder(self) -> bytes:
        """The Flight Recorder as JSON: of the handlers it has, the one that tells most."""
        dumps = [_post(self.port, f"/handler/{name}") for name in _RECORDERS if name in self.handlers]
        if not dumps:
            offers = ", ".join(self.handlers)
            raise DtscopeError(f"the debug server of process {self.process.pid} has no Flight Recorder; it offers {offers}")
        return max(dumps, key=len)


def find(process: Process) -> DebugServer | None:
    """The worker server that the process itself runs, or None."""
    for port in sorted(process.listening(children=False)):
        try:
            handlers = json.loads(_request(port, "GET", "/handler/"))
        except (OSError, ValueError, http.client.HTTPException):
            continue
        if isinstance(handlers, list) and "dump_traceback" in handlers:
            return DebugServer(process, port, [str(name) for name in handlers])
    return None


def servers(pid: int) -> dict[int, DebugServer]:
    """By rank, the worker servers of a process and of those that it started: a rank's own, or a launcher's ranks'."""
    found: dict[int, DebugServer] = {}
    for process in family(pid):
        try:
            server = find(process)
            rank = int(process.environment.get("RANK", "0"))
        except (OSError, ValueError):
            continue
        if server is not None:
            found.setdefault(rank, server)
    return found


def take(pid: int, into: Path) -> Path:
    """Writes what the debug servers of `servers(pid)` tell into a new run directory in `into`; DtscopeError where there are none."""
    found = servers(pid)
    if not found:
        raise DtscopeError(f"process {pid} has no debug server; call torch.distributed.debug.start_debug_server() in the script")
    return write(found, f"pid-{pid}", into)


def write(found: dict[int, DebugServer], name: str, into: Path) -> Path:
    """As `take`, for servers that were found; all are asked before anything is written."""
    told = {rank: (server.flight_recorder(), server.stacks()) for rank, server in found.items()}
    world_size = max(int(server.process.environment.get("WORLD_SIZE", "1")) for server in found.values())
    meta: dict[str, Any] = {"name": name, "world_size": world_size, "created_ns": time.time_ns(), "launcher": "debug server"}
    attempt = rundir.create_attempt(into / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}", meta)
    for rank, (recorder, stacks) in told.items():
        folder = attempt.rank_path(rank)
        folder.mkdir(mode=0o700)
        rundir.write_json(folder / "rank.json", {"rank": rank, "world_size": world_size, "pid": found[rank].process.pid})
        for file, data in (("flight_recorder-000000.json", recorder), ("stacks-000000.txt", stacks)):
            path = folder / file
            path.touch(mode=0o600)
            path.write_bytes(data)
    return attempt.run


def _post(port: int, path: str) -> bytes:
    try:
        return _request(port, "POST", path)
    except (OSError, http.client.HTTPException) as error:
        raise DtscopeError(f"the debug server at port {port} did not answer: {error}; is the process stopped?") from error


def _request(port: int, method: str, path: str) -> bytes:
    try:
        connection = _connected("127.0.0.1", port)
    except ConnectionRefusedError:
        connection = _connected("::1", port)
    try:
        connection.request(method, path, body=b"")
        answer = connection.getresponse()
        data = answer.read(_LARGEST)
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"{path} gave {answer.status}")
    return data


def _connected(host: str, port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    connection.connect()
    return connection
