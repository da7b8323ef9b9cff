# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of one world: a rendezvous store and its ranks, forked from the warm process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.launch import leftovers
from dtscope_jupyter.launch.environment import rank_environment
from dtscope_jupyter.launch.messages import Run, Setup, Stop

if TYPE_CHECKING:
    from dtscope_jupyter.launch.messages import Ended
    from dtscope_jupyter.launch.program import Options, Program
    from dtscope_jupyter.launch.warm import Warm

_LEAVE_S = 2.0
_RANK, _STORE = "dtscope_jupyter.launch.rank", "dtscope_jupyter.launch.store"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code` as subprocess gives it (negative: a signal), seen at `time_ns`.

    `orphaned`: the warm process went first and took it along.
    """

    code: int
    time_ns: int
    orphaned: bool = False


class Rank:
    """One process: its pid, its pipe to us, and the pipe on which the warm process tells its end."""

    def __init__(self, number: int, pid: int, pipe: Connection, status: Connection) -> None:
        self.number = number
        self.pid = pid
        self.pipe = pipe
        self.status = status
        self.ended: Ended | None = None
        self.exit: Exit | None = None

    def order(self, order: Setup | Run | Stop) -> None:
        """Sends an order; a rank that is gone is noticed by its status, not here."""
        try:
            self.pipe.send_bytes(pickle.dumps(order, protocol=5))
        except (BrokenPipeError, ConnectionResetError):
            return

    def close(self) -> None:
        """Closes both pipes; a rank that still runs then ends itself."""
        self.pipe.close()
        self.status.close()


class World(ABC):
    """Ranks that share a store, wherever they are."""

    settle_s = 0.25
    """How long after a first failure another may still turn out to be its cause."""

    def __init__(self, backend: str | None) -> None:
        self.ranks: list[Rank] = []
        self.backend = backend

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def pids(self) -> list[int]:
        """Process ids by rank."""
        return [rank.pid for rank in self.ranks]

    @property
    def running(self) -> list[Rank]:
        """Those whose process hasn't ended."""
        return [rank for rank in self.ranks if rank.exit is None]

    def gone(self) -> bool:
        """Whether any rank has ended; looks, for nobody watches ranks that were kept."""
        for rank in self.running:
            if rank.status.closed or rank.status.poll():
                return True
        return len(self.running) < self.size

    @abstractmethod
    def run(self, program: Program, options: Options) -> None:
        """Has every rank run a program."""

    @abstractmethod
    def dismiss(self) -> None:
        """Lets idle ranks that were kept leave by themselves, and ends those that don't within 2 s."""

    @abstractmethod
    def signal(self, rank: Rank, number: signal.Signals) -> None:
        """Signals a rank that hasn't ended; SIGKILL takes its own children along."""

    @abstractmethod
    def bury(self, rank: Rank) -> None:
        """Ends the children of a rank that nobody else ends, as the warm process is gone."""

    @abstractmethod
    def close(self) -> None:
        """Ends what is left of it."""


class LocalWorld(World):
    """Ranks forked from the warm process of this host; made by the kernel, they end with it."""

    def __init__(self, warm: Warm, options: Options, state: tuple[str, list[str]]) -> None:
        """`state`: the working directory and import path of the notebook. Returns when every rank is forked."""
        super().__init__(options.backend)
        self._warm = warm
        self._store: Store | None = None
        try:
            self._start(options, *state)
        except BaseException:
            self.close()
            raise

    def run(self, program: Program, options: Options) -> None:
        """Has every rank run a program."""
        for rank, log, config in zip(self.ranks, options.logs, options.configs, strict=True):
            rank.ended = None
            rank.order(Run(program, log, config, options.keep))

    def dismiss(self) -> None:
        """Lets idle ranks that were kept leave by themselves, and ends those that don't within 2 s."""
        for rank in self.running:
            rank.order(Stop())
        deadline = time.monotonic() + _LEAVE_S
        for rank in self.running:
            rank.status.poll(max(0.0, deadline - time.monotonic()))
        self.close()

    def signal(self, rank: Rank, number: signal.Signals) -> None:
        """Signals a rank that hasn't ended; SIGKILL takes its own children along."""
        self._warm.signal(rank.pid, number, group=number == signal.SIGKILL)

    def bury(self, rank: Rank) -> None:
        """Ends the children of a rank that nobody else ends, as the warm process is gone."""
        kill_group(rank.pid)

    def close(self) -> None:
        """Ends what is left of it."""
        for rank in self.running:
            if not rank.status.closed and rank.status.poll() and read_exit(rank.status).orphaned:
                self.bury(rank)
        for rank in self.ranks:
            rank.close()
        if self._store is not None:
            self._store.close()

    def _start(self, options: Options, cwd: str, sys_path: list[str]) -> None:
        self._warm.wait_ready()
        self._store = Store(self._warm, "127.0.0.1")
        for number in range(options.world_size):
            self.ranks.append(fork_rank(self._warm, number))  # what is forked is closed if the next can't be
        for rank in self.ranks:
            environment = rank_environment(rank.number, options.world_size, self._store.port, options.run_id)
            rank.order(Setup(environment, cwd, sys_path, options.backend))


class Store:
    """The rendezvous store of a world, in a process of its own that is forked from the warm process."""

    def __init__(self, warm: Warm, address: str) -> None:
        """Listens at `address`, on a port that it takes itself; OSError where it can't."""
        self._alive, theirs = socket.socketpair()
        try:
            with theirs, socket.create_server((address, 0)) as listener:
                _, self._status = warm.fork(_STORE, [listener.fileno(), theirs.fileno()])
                self.port = int(listener.getsockname()[1])
        except BaseException:
            self._alive.close()
            raise

    def close(self) -> None:
        """Lets the process end; idempotent."""
        self._alive.close()
        if self._status >= 0:
            os.close(self._status)
            self._status = -1


def fork_rank(warm: Warm, number: int) -> Rank:
    """A new process that waits for its `Setup`."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid, status = warm.fork(_RANK, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
    return Rank(number, pid, Connection(ours.detach()), Connection(status, writable=False))


def read_exit(status: Connection) -> Exit:
    """What the warm process says of a child's end; its own end is the end of all its children."""
    try:
        data = os.read(status.fileno(), 4096)
    except OSError:
        data = b""
    if not data:
        return Exit(-int(signal.SIGKILL), time.time_ns(), orphaned=True)
    told: dict[str, Any] = json.loads(data)
    return Exit(told["code"], told["time_ns"])


def kill_group(leader: int) -> None:
    """Kills what is left of a process group of our session; its leader may be gone, so that its number alone proves nothing."""
    leftovers.kill(leftovers.members(leader, os.getsid(0)))
