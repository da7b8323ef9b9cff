# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The collector's door: a ROUTER that speaks CURVE only, knows its clients by key, and counts whom it turned away."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import wire

if TYPE_CHECKING:
    from dtscope_jupyter.transport.keys import CollectorKeys

log = logging.getLogger("dtscope.collector")

RANK, NOTEBOOK = "rank", "notebook"
_NO_CURVE = "no CURVE handshake"
_FAILURES = {
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "unknown key",
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "a handshake that is damaged or for another collector",
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): _NO_CURVE,
    int(zmq.EVENT_ACCEPT_FAILED): "no descriptor left",
}
_MISMATCH = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
"""Noticed by us first; else the stranger closes the connection, and no detail is known."""
_EVENTS = sum(_FAILURES) | zmq.EVENT_DISCONNECTED
_HANDSHAKE_MS = 5_000
_HEARTBEAT_MS = 5_000
_LOG_EVERY_S = 10.0


class _Known:
    """Tells the authenticator whose keys may connect."""

    def __init__(self, keys: CollectorKeys) -> None:
        self.roles = dict.fromkeys(keys.ranks, RANK) | dict.fromkeys(keys.notebooks, NOTEBOOK)

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether the client's public key is known."""
        return key.decode() in self.roles


class Gate:
    """Listens at `endpoint` (tcp://HOST:PORT, port 0 for any); `refused` counts by reason, `closed` ended connections.

    A message of more than twice `wire.MAX_MESSAGE_BYTES` never gets here: ZeroMQ ends that connection.
    """

    def __init__(self, endpoint: str, keys: CollectorKeys) -> None:
        """DtscopeError where the endpoint can't be bound."""
        self.refused: Counter[str] = Counter()
        self.closed = 0
        self._logged: dict[str, float] = {}
        self._known = _Known(keys)
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 64)
        self._authenticator = ThreadAuthenticator(self._context, log=logging.getLogger("dtscope.keys"))
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain="dtscope", credentials_provider=self._known)
        self.socket = self._context.socket(zmq.ROUTER)
        self.monitor = self.socket.get_monitor_socket(_EVENTS)
        try:
            self._listen(endpoint, keys)
        except zmq.ZMQError as error:
            self.close()
            raise DtscopeError(f"can't listen at {endpoint!r}: {error.strerror}; give tcp://HOST:PORT with a free port") from error

    @property
    def endpoint(self) -> str:
        """Where it listens, with the port that it got."""
        return self.socket.get_string(zmq.LAST_ENDPOINT)

    def role(self, frame: zmq.Frame) -> str:
        """What the sender of a frame may do; "" for a key that is not known."""
        return self._known.roles.get(str(frame.get("User-Id")), "")

    def refuse(self, reason: str, detail: str = "") -> None:
        """Counts a refusal and logs it, each reason at most once in ten seconds."""
        self.refused[reason] += 1
        if self._may_log(reason):
            log.warning("refused: %s%s (%d so far)", reason, f": {detail}" if detail else "", self.refused[reason])

    def note(self, what: str, count: int) -> None:
        """Logs what happens in peace as well but may be a sign of something else, at most once in ten seconds."""
        if self._may_log(what):
            log.info("%s (%d so far)", what, count)

    def _may_log(self, what: str) -> bool:
        now = time.monotonic()
        due = now - self._logged.get(what, -_LOG_EVERY_S) >= _LOG_EVERY_S
        if due:
            self._logged[what] = now
        return due

    def watch(self) -> None:
        """Counts the connections that failed, or that were closed by either side, since the last call."""
        while self.monitor.poll(0):
            message = parse_monitor_message(self.monitor.recv_multipart())
            event = int(message["event"])
            if message["value"] == _MISMATCH and event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self.refuse(_NO_CURVE)
            elif event in _FAILURES:
                self.refuse(_FAILURES[event])
            else:
                self.closed += 1
                most = 2 * wire.MAX_MESSAGE_BYTES
                self.note(f"a connection ended, by its client or for a message of more than {most} bytes", self.closed)

    def close(self) -> None:
        """Stops listening; what was not sent is dropped."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)
        self._authenticator.stop()
        self._context.destroy(linger=0)

    def _listen(self, endpoint: str, keys: CollectorKeys) -> None:
        socket = self.socket
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
        socket.zap_domain = b"dtscope"
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, 2 * wire.MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)
        socket.setsockopt(zmq.RCVHWM, 8)
        socket.setsockopt(zmq.SNDHWM, 64)
        socket.setsockopt(zmq.BACKLOG, 4096)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(endpoint if wire.is_address(endpoint, 0) else "")
