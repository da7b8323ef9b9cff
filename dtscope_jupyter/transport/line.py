# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A client's line to the collector: one question at a time, one answer, a new socket where none came."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import zmq

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import wire

if TYPE_CHECKING:
    from dtscope_jupyter.transport.keys import ClientKeys

_HEARTBEAT_MS = 5_000


class AwayError(Exception):
    """The collector did not answer in time."""


class Line:
    """A CURVE connection to `endpoint`; not for several threads."""

    def __init__(self, endpoint: str, keys: ClientKeys) -> None:
        """Connects in the background; DtscopeError where the endpoint is no tcp://HOST:PORT."""
        self._endpoint = endpoint
        self._keys = keys
        self._context = zmq.Context()
        self._socket = self._connected()

    def ask(self, request: wire.Request, payload: bytes = b"", timeout: float = 5.0) -> tuple[wire.Reply, memoryview]:
        """Sends, and returns the answer and its bytes; AwayError after `timeout` seconds, the next call starts afresh."""
        frames = [wire.encode(request), payload] if payload else [wire.encode(request)]
        deadline = time.monotonic() + timeout
        try:
            self._wait(zmq.POLLOUT, deadline)
            self._socket.send_multipart(frames, zmq.NOBLOCK)
            self._wait(zmq.POLLIN, deadline)
            answer = self._socket.recv_multipart(zmq.NOBLOCK)
            return wire.decode_reply(answer[0]), memoryview(answer[1] if len(answer) > 1 else b"")
        except (zmq.ZMQError, msgspec.MsgspecError, AwayError) as error:
            self._socket.close(linger=0)
            self._socket = self._connected()
            raise AwayError(f"no answer from {self._endpoint} within {timeout:g} s") from error

    def close(self) -> None:
        """Hangs up."""
        self._context.destroy(linger=0)

    def _wait(self, event: int, deadline: float) -> None:
        if not self._socket.poll(max(0, int(1e3 * (deadline - time.monotonic()))), event):
            raise AwayError("no answer")

    def _connected(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.curve_publickey, socket.curve_secretkey = self._keys.public.encode(), self._keys.secret.encode()
        socket.curve_serverkey = self._keys.collector.encode()
        for option, value in {
            zmq.LINGER: 0,
            zmq.IMMEDIATE: 1,
            zmq.SNDHWM: 4,
            zmq.RCVHWM: 4,
            zmq.MAXMSGSIZE: wire.MAX_MESSAGE_BYTES,
            zmq.RECONNECT_IVL: 100,
            zmq.RECONNECT_IVL_MAX: 2_000,
            zmq.HEARTBEAT_IVL: _HEARTBEAT_MS,
            zmq.HEARTBEAT_TIMEOUT: 3 * _HEARTBEAT_MS,
        }.items():
            socket.setsockopt(option, value)
        try:
            socket.connect(self._endpoint if wire.is_address(self._endpoint) else "")
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise DtscopeError(f"{self._endpoint!r} is no address of a collector; give tcp://HOST:PORT") from error
        return socket
