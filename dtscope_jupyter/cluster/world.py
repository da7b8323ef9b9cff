# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A world whose ranks are children of a cluster's engines: `launch.Job` sees to them as to those of this host.

What an engine tells of its rank is put into pipes like those that a local rank has. The channels to the engines are
ipyparallel's own, whose messages are signed.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import secrets
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import asking
from dtscope_jupyter.cluster import engine
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch.messages import Ended
from dtscope_jupyter.launch.world import Rank, World
from dtscope_jupyter.places import working_directory

if TYPE_CHECKING:
    from dtscope_jupyter.cluster.engines import Engines
    from dtscope_jupyter.launch import Options, Program
    from dtscope_jupyter.rundir import Attempt

_PATIENCE_S = 0.4
_ASK_S = 2.0
_START_S = 120.0
"""Until torch is imported, from a slow file system too."""


class ClusterWorld(World):
    """One program's ranks on the engines; `close` leaves nothing of ours there."""

    settle_s = 1.0

    def __init__(self, engines: Engines, attempt: Attempt, backend: str) -> None:
        """Nothing is started yet."""
        super().__init__(backend)
        self._engines = engines
        self._attempt = attempt
        self._created_ns = attempt.meta["created_ns"]
        self._token = secrets.token_hex(8)
        self._orders: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._tells: list[_Telling] = []
        self._closed = False
        self._relay: threading.Thread | None = None

    def run(self, program: Program, options: Options) -> None:
        """Starts the ranks on their engines, and a thread that follows them; DtscopeError where they can't be started."""
        self._prepare()
        rendezvous = self._serve_store()
        asked = []
        for number, seat in enumerate(self._engines.seats):
            config = options.configs[number]
            config = config and {**config, "local_rank": seat.places["local_rank"]}
            order = pickle.dumps((program, options.logs[number], config, working_directory(), options.backend), protocol=5)
            asked.append(self._engines.call(number, engine.begin, self._token, seat.places, rendezvous, options.run_id, order))
        pids = [self._engines.answer(number, each, _START_S) for number, each in enumerate(asked)]
        self._tells = [_Telling(number, pid) for number, pid in enumerate(pids)]
        self.ranks = [telling.rank for telling in self._tells]
        if not self._engines.one_host:
            asking.routes[self._attempt.path] = self.ask
        self._relay = threading.Thread(target=self._follow, name="dtscope-cluster", daemon=True)
        self._relay.start()

    def signal(self, rank: Rank, number: signal.Signals) -> None:
        """Has the engine signal a rank, soon."""
        self._orders.put((rank.number, int(number)))

    def bury(self, rank: Rank) -> None:
        """The rank's engine does that."""

    def dismiss(self) -> None:
        """Ranks of a cluster are not kept."""
        self.close()

    def ask(self, rank: int, request: dict[str, Any]) -> dict[str, Any]:
        """A question to a live rank, through its engine."""
        folder = str(self._attempt.rank_path(rank))
        try:
            reply = self._engines.answer(rank, self._engines.call(rank, engine.ask, folder, request, _ASK_S), 3 * _ASK_S)
        except DtscopeError as error:
            return {"ok": False, "error": str(error)}
        return dict(reply)

    def close(self) -> None:
        """Ends what is left on the engines and hangs up; idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._relay is not None:
            self._relay.join(10 * _PATIENCE_S)
        asking.routes.pop(self._attempt.path, None)
        self._engines.release(self._token)
        self._engines.close()
        for rank in self.ranks:
            rank.close()

    def _prepare(self) -> None:
        refusals = self._engines.everywhere(engine.prepare, self._token, str(self._attempt.path), self._created_ns)
        for seat, refusal in zip(self._engines.seats, refusals, strict=True):
            if refusal:
                raise DtscopeError(
                    f"engine {seat.engine} on {seat.host}: {refusal}: give a --dir that all engines share with this notebook, "
                    "or start the job with DTRAINSCOPE_COLLECTOR and %dtscope attach tcp://HOST:PORT"
                )

    def _serve_store(self) -> tuple[str, int]:
        first = self._engines.seats[0]
        peer = next((seat.host for seat in self._engines.seats if seat.places["host"] != first.places["host"]), "")
        asked = self._engines.call(0, engine.serve_store, self._token, peer)
        address, port = self._engines.answer(0, asked, _START_S)
        return str(address), int(port)

    def _follow(self) -> None:
        """Asks every engine for news until all ranks have ended or the world is closed."""
        waiting: dict[int, Any] = {}
        while not self._closed and any(telling.open for telling in self._tells):
            self._send_signals()
            for number, telling in enumerate(self._tells):
                if telling.open and number not in waiting:
                    self._ask_news(telling, waiting)
            time.sleep(_PATIENCE_S / 20)
            for number in [number for number, asked in waiting.items() if asked.ready()]:
                self._tell(self._tells[number], waiting.pop(number))

    def _ask_news(self, telling: _Telling, waiting: dict[int, Any]) -> None:
        number = telling.rank.number
        try:
            waiting[number] = self._engines.call(number, engine.news, self._token, _PATIENCE_S)
        except DtscopeError as error:
            telling.lost(str(error))

    def _send_signals(self) -> None:
        while not self._orders.empty():
            number, what = self._orders.get()
            with suppress(DtscopeError):  # that the engine is gone is told when it is asked for news
                self._engines.call(number, engine.send_signal, self._token, what)

    def _tell(self, telling: _Telling, asked: Any) -> None:
        try:
            for what, value in self._engines.answer(telling.rank.number, asked):
                telling.tell(what, value)
        except DtscopeError as error:
            telling.lost(str(error))


class _Telling:
    """The far ends of a rank's two pipes."""

    def __init__(self, number: int, pid: int) -> None:
        pipe, self._pipe = Pipe()
        status, self._status = Pipe(duplex=False)
        self.rank = Rank(number, pid, pipe, status)
        self.open = True

    def tell(self, what: str, value: Any) -> None:
        """Passes on what the engine told."""
        if what == "ended":
            self._pipe.send_bytes(value)
            return
        code, time_ns = value
        self._exit(code, time_ns)

    def lost(self, why: str) -> None:
        """The engine is gone, and its rank with it."""
        now = time.time_ns()
        self._pipe.send_bytes(pickle.dumps(Ended(now, reason=why), protocol=5))
        self._exit(-int(signal.SIGKILL), now)

    def _exit(self, code: int, time_ns: int) -> None:
        self.open = False
        os.write(self._status.fileno(), json.dumps({"code": code, "time_ns": time_ns}).encode())
        self._pipe.close()
        self._status.close()
