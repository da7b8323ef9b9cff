# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Runs on an engine of an ipyparallel cluster: starts one rank as a child process, and tells how it goes.

The engine is what torchrun's agent is on a host. Its own process, namespace, environment and threads stay as they are, and a rank
that is stuck in C++ can be killed without losing the engine. Each function is called through ipyparallel and returns soon; plain
values go both ways. What a rank is, and how it is told what to do, is `launch`'s.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dtscope_jupyter import __version__, rundir
from dtscope_jupyter.agent import clock, control
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch.environment import gpus, rank_environment
from dtscope_jupyter.launch.messages import Run, Setup
from dtscope_jupyter.launch.warm import Warm, sys_path
from dtscope_jupyter.launch.world import Rank, Store, fork_rank, kill_group, read_exit

_LEASE_S = 60.0
_LOOK_S = 1.0
_DISCARD = 9
"""Port of the discard service: connecting a datagram socket sends nothing, whatever the port."""


def facts() -> dict[str, Any]:
    """Who this engine is."""
    return {
        "dtscope": __version__,
        "python": ".".join(map(str, sys.version_info[:2])),
        "host": socket.gethostname(),
        "boot": clock.boot_id(),
        "gpus": gpus(),
    }


def prepare(token: str, attempt: str, created_ns: int) -> str:
    """Starts the warm process of a rank and returns at once: "", or why no rank can run here."""
    path = Path(attempt)
    if rundir.read_json(path / "run.json").get("created_ns") != created_ns:
        return f"it does not see the run directory {attempt}"
    if not os.access(path, os.W_OK | os.X_OK):
        return f"it may not write to the run directory {attempt}"
    _started[token] = child = _Child()
    child.warm.start()
    return ""


def serve_store(token: str, peer: str) -> tuple[str, int]:
    """Serves the world's rendezvous here: its address as `peer` (a host; "" for this one alone) reaches it, and its port."""
    child = _started[token]
    child.warm.wait_ready()
    address = _address_towards(peer) if peer else "127.0.0.1"
    child.store = Store(child.warm, address)
    return address, child.store.port


def begin(token: str, places: dict[str, int], rendezvous: tuple[str, int], run_id: str, order: bytes) -> int:
    """Starts the rank and has it run `order`, a pickled (program, log, config, working directory, backend); its pid.

    `places`: rank, world_size, local_rank, local_world_size, host and hosts, as torchrun numbers them.
    """
    program, log, config, cwd, backend = pickle.loads(order)  # noqa: S301 # from the client, which may run any code here anyway
    child = _started[token]
    child.warm.wait_ready()
    child.rank = rank = fork_rank(child.warm, places["rank"])
    directory = cwd if Path(cwd).is_dir() else str(Path.cwd())
    environment = _environment(places, rendezvous, run_id)
    rank.order(Setup(environment, directory, [directory, *sys_path()], backend))
    rank.order(Run(program, log, config, keep=False))
    return rank.pid


def news(token: str, patience: float) -> list[tuple[str, Any]]:
    """What happened to the rank, waited for up to `patience` seconds: ("ended", bytes of an Ended), ("exit", (code, time_ns))."""
    child = _started.get(token)
    if child is None or child.rank is None:
        return [("exit", (-int(signal.SIGKILL), time.time_ns()))]
    child.asked = time.monotonic()
    rank = child.rank
    wait([pipe for pipe in (rank.pipe, rank.status) if not pipe.closed], patience)
    told: list[tuple[str, Any]] = []
    if not rank.pipe.closed and rank.pipe.poll():
        try:
            told.append(("ended", rank.pipe.recv_bytes()))
        except (EOFError, OSError):
            rank.pipe.close()
    elif not rank.status.closed and rank.status.poll():
        rank.exit = read_exit(rank.status)
        if rank.exit.orphaned:
            kill_group(rank.pid)
        told.append(("exit", (rank.exit.code, rank.exit.time_ns)))
        rank.close()
    return told


def send_signal(token: str, number: int) -> None:
    """Signals the rank, if it still runs; SIGKILL takes its children along."""
    child = _started.get(token)
    if child is not None and child.rank is not None and child.rank.exit is None:
        child.warm.signal(child.rank.pid, signal.Signals(number), group=number == signal.SIGKILL)


def ask(folder: str, request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Asks a rank of this host, as `asking` does on the notebook's."""
    try:
        return control.ask(Path(folder), request, timeout)
    except DtscopeError as error:
        return {"ok": False, "error": str(error)}


def end(token: str) -> None:
    """Ends what is left: nothing of ours stays on the engine."""
    child = _started.pop(token, None)
    if child is not None:
        child.close()


class _Child:
    """One rank and the warm process that it is forked from; they end when nobody has asked for news for a minute."""

    def __init__(self) -> None:
        self.warm = Warm()
        self.store: Store | None = None
        self.rank: Rank | None = None
        self.asked = time.monotonic()
        self._closed = threading.Event()
        threading.Thread(target=self._expire, name="dtscope-lease", daemon=True).start()

    def close(self) -> None:
        """Idempotent."""
        self._closed.set()
        if self.rank is not None:
            self.rank.close()
        if self.store is not None:
            self.store.close()
        self.warm.stop()

    def _expire(self) -> None:
        while not self._closed.wait(_LOOK_S):
            if time.monotonic() - self.asked > _LEASE_S:
                self.close()


_started: dict[str, _Child] = {}


def _environment(places: dict[str, int], rendezvous: tuple[str, int], run_id: str) -> dict[str, str]:
    """As torchrun sets it on several hosts, over the engine's own."""
    address, port = rendezvous
    base = rank_environment(places["rank"], places["world_size"], port, run_id)
    if places["hosts"] > 1 and "GLOO_SOCKET_IFNAME" not in os.environ:
        del base["GLOO_SOCKET_IFNAME"]
    theirs = {
        "LOCAL_RANK": places["local_rank"], "LOCAL_WORLD_SIZE": places["local_world_size"],
        "GROUP_RANK": places["host"], "GROUP_WORLD_SIZE": places["hosts"], "MASTER_ADDR": address,
    }  # fmt: skip
    return base | {name: str(value) for name, value in theirs.items()}


def _address_towards(peer: str) -> str:
    """The address of this host on the route to another."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(peer, _DISCARD, type=socket.SOCK_DGRAM)[0]
        with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        here = socket.gethostname()
        raise DtscopeError(f"{here} can't reach {peer} ({error}): let the engines' hosts resolve each other's names") from error
