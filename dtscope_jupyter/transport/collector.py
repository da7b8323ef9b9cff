# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The collector: one loop that writes what ranks ship and answers notebooks from what is written.

What a rank shipped is acknowledged after it was written, so a collector that is killed loses nothing: the rank is told
at its next hello how far each file has come, and goes on from there.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import zmq

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import gate, wire
from dtscope_jupyter.transport.archive import Archive
from dtscope_jupyter.transport.follower import Follower, runs_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from dtscope_jupyter.transport.archive import RankFolder
    from dtscope_jupyter.transport.keys import CollectorKeys

log = logging.getLogger("dtscope.collector")

_ALLOWED = {
    gate.RANK: (wire.Hello, wire.Ship, wire.Clock),
    gate.NOTEBOOK: (wire.Follow, wire.More, wire.Clock),
}
_IDLE_S = 300.0
_MESSAGES_A_TURN = 256


@dataclass(slots=True)
class _Peer:
    """One connection, by its routing id."""

    seen: float
    folder: RankFolder | None = None
    follower: Follower | None = None


@dataclass(slots=True)
class Counts:
    """What came in since the start."""

    messages: int = 0
    rows: int = 0
    bytes: int = 0
    repeated: int = 0
    events: Counter[str] = field(default_factory=Counter)


class Collector:
    """Serves until `stop` is set; `disk` is the bytes that one rank's files may have."""

    def __init__(self, endpoint: str, folder: Path, keys: CollectorKeys, disk: int = 2 * 2**30) -> None:
        """Listens from here on; DtscopeError where it can't."""
        self.counts = Counts()
        self._peers: dict[bytes, _Peer] = {}
        self._archive = Archive(folder, disk)
        try:
            self.gate = gate.Gate(endpoint, keys)
        except DtscopeError:
            self._archive.close()
            raise
        self._handlers: dict[type, Callable[..., None]] = {
            wire.Hello: self._hello,
            wire.Ship: self._ship,
            wire.Clock: self._clock,
            wire.Follow: self._follow,
            wire.More: self._more,
        }

    @property
    def endpoint(self) -> str:
        """Where ranks and notebooks connect."""
        return self.gate.endpoint

    def run(self, stop: threading.Event) -> None:
        """Serves; returns when `stop` is set, with all files closed."""
        poller = zmq.Poller()
        poller.register(self.gate.socket, zmq.POLLIN)
        poller.register(self.gate.monitor, zmq.POLLIN)
        tidied = time.monotonic()
        try:
            while not stop.is_set():
                ready = dict(poller.poll(200))
                if self.gate.socket in ready:
                    self._turn()
                if self.gate.monitor in ready:
                    self.gate.watch()
                if time.monotonic() - tidied > _IDLE_S / 10:
                    tidied = time.monotonic()
                    self._forget(tidied - _IDLE_S)
        finally:
            self.gate.close()
            self._archive.close()

    def _turn(self) -> None:
        for _ in range(_MESSAGES_A_TURN):
            try:
                frames = self.gate.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._receive(frames, time.time_ns())

    def _receive(self, frames: list[zmq.Frame], received: int) -> None:
        self.counts.messages += 1
        identity, role = frames[0].bytes, self.gate.role(frames[-1])
        try:
            _, header, *rest = frames
            if sum(map(len, frames)) > wire.MAX_MESSAGE_BYTES:
                self._refuse(identity, "oversized message", f"more than {wire.MAX_MESSAGE_BYTES} bytes")
                return
            request = wire.decode_request(header.buffer)
            payload = rest[0].buffer if rest else memoryview(b"")
            if not isinstance(request, _ALLOWED.get(role, ())):
                self._refuse(identity, "not allowed with this key", type(request).__name__)
                return
            peer = self._peers.setdefault(identity, _Peer(0.0))
            peer.seen = time.monotonic()
            self._handlers[type(request)](identity, peer, request, payload, received)
        except (msgspec.MsgspecError, ValueError) as error:
            self._refuse(identity, "not allowed" if isinstance(error, DtscopeError) else "unreadable message", str(error))
        except OSError as error:
            self._refuse(identity, "disk", error.strerror or str(error), retry=True)

    def _hello(self, identity: bytes, peer: _Peer, request: wire.Hello, *_: object) -> None:
        if not self._speaks(identity, request.protocol):
            return
        folder = self._archive.folder(request.place)
        if not folder.claim(request.token):
            place = request.place
            taken = f"rank {place.rank} of {place.run!r} is written by another process; name the run otherwise"
            self._refuse(identity, "place taken", taken)
            return
        peer.folder = folder
        self._send(identity, wire.Welcome(folder.ends))

    def _ship(self, identity: bytes, peer: _Peer, request: wire.Ship, payload: memoryview, _: int) -> None:
        folder = peer.folder
        if folder is None:
            self._send(identity, wire.Who())
            return
        ends: wire.Ends = {}
        for part, head, body in wire.split(request.parts, payload):
            before = folder.ends.get(part.name, 0)
            try:
                self.counts.rows += self._archive.take(folder, part, head, body)
            except DtscopeError as error:
                self.gate.refuse("not allowed", str(error))
                continue
            ends[part.name] = folder.ends.get(part.name, 0)
            if part.kind != "whole" and ends[part.name] == before:
                self.counts.repeated += 1
                self.gate.note("a part that came before was not written again, or one that leaves a gap", self.counts.repeated)
        self.counts.bytes += len(payload)
        self._send(identity, wire.Ack(request.number, ends))

    def _clock(self, identity: bytes, _peer: _Peer, request: wire.Clock, _payload: memoryview, received: int) -> None:
        self._send(identity, wire.Time(request.sent, received, time.time_ns()))

    def _follow(self, identity: bytes, peer: _Peer, request: wire.Follow, *_: object) -> None:
        if not self._speaks(identity, request.protocol):
            return
        runs = runs_of(self._archive.path)
        run = request.run or (runs[0] if runs else "")
        if run not in runs:
            self._refuse(identity, "no such run", repr(run), retry=True)
            return
        peer.follower = Follower(self._archive, run, request.have)
        self._send(identity, wire.Following(run, runs))

    def _more(self, identity: bytes, peer: _Peer, request: wire.More, *_: object) -> None:
        if peer.follower is None:
            self._send(identity, wire.Who())
            return
        news, payload = peer.follower.news(request.limit)
        self._send(identity, news, payload)

    def _speaks(self, identity: bytes, protocol: int) -> bool:
        if protocol != wire.PROTOCOL:
            detail = f"the client speaks {protocol}, the collector {wire.PROTOCOL}; install one version on both sides"
            self._refuse(identity, "protocol", detail)
        return protocol == wire.PROTOCOL

    def _refuse(self, identity: bytes, reason: str, detail: str, *, retry: bool = False) -> None:
        self.gate.refuse(reason, detail)
        self._send(identity, wire.Refused(f"{reason}: {detail}", retry))

    def _send(self, identity: bytes, reply: wire.Reply, payload: bytes = b"") -> None:
        frames = [identity, wire.encode(reply), payload] if payload else [identity, wire.encode(reply)]
        try:
            self.gate.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            self._peers.pop(identity, None)

    def _forget(self, before: float) -> None:
        for identity in [identity for identity, peer in self._peers.items() if peer.seen < before]:
            del self._peers[identity]
