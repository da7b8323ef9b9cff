# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Answers `control.ask` inside the rank, on a daemon thread of its own, also while the program sits in a collective."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent import control
from dtscope_jupyter.agent.commands import Commands
from dtscope_jupyter.descriptors import Mark
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent

_log = logging.getLogger(__name__)
_PATIENCE_S = 2.0


class Server:
    """Listens in the rank folder (0600); one request a connection."""

    def __init__(self, agent: Agent) -> None:
        """Binds and starts the thread; OSError where that can't be."""
        self._commands = Commands(agent)
        self._folder = agent.config.folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._bind()
        self._mark = Mark(self._socket.fileno())
        self._thread = threading.Thread(target=self._serve, name="dtscope-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and removes the socket; idempotent."""
        if self._mark.stands():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        else:
            self._socket.detach()  # the program closed it, and its number may mean a file of the program now
        (self._folder / control.SOCKET).unlink(missing_ok=True)

    def _bind(self) -> None:
        path = self._folder / control.SOCKET
        path.unlink(missing_ok=True)
        with control.short_path(self._folder) as short:
            self._socket.bind(short)
        path.chmod(0o600)
        self._socket.listen(8)

    def _serve(self) -> None:
        while self._mark.stands():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            try:
                with connection:
                    connection.settimeout(_PATIENCE_S)
                    if _same_user(connection):
                        self._answer(connection)
            except OSError as error:
                _log.debug("dtscope: a control connection ended: %s", error)

    def _answer(self, connection: socket.socket) -> None:
        reply = self._reply(_line(connection))
        connection.sendall(json.dumps(reply, default=str).encode() + b"\n")

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise DtscopeError("a request is a JSON object with a command")  # noqa: TRY301
            return {"ok": True, **self._commands.run(request)}
        except ValueError as error:
            return {"ok": False, "error": str(error).splitlines()[0]}
        except Exception as error:  # noqa: BLE001 # it is logged, and training goes on
            _log.exception("dtscope: a command failed")
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def _line(connection: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < control.MAX_LINE:
        part = connection.recv(4096)
        if not part:
            break
        line += part
    return bytes(line)


def _same_user(connection: socket.socket) -> bool:
    """The folder is 0700 and the socket 0600; this holds on file systems that know no modes as well."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little") in (os.getuid(), 0)
