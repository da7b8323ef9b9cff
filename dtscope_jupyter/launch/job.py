# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One program on all ranks, watched from a thread until every rank is done: failures, interrupts, time limit."""

from __future__ import annotations

import pickle
import threading
import time
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.launch import values
from dtscope_jupyter.launch.failure import Failure, describe_exit, first
from dtscope_jupyter.launch.messages import NEVER_SET
from dtscope_jupyter.launch.tail import last_lines
from dtscope_jupyter.launch.warm import Warm, sys_path
from dtscope_jupyter.launch.world import LocalWorld, Rank, World, read_exit
from dtscope_jupyter.places import working_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dtscope_jupyter.launch.messages import Ended
    from dtscope_jupyter.launch.program import Options, Program

_INTERRUPT = ((Signals.SIGINT, 5.0), (Signals.SIGTERM, 2.0), (Signals.SIGKILL, 2.0))
_STOP = ((Signals.SIGINT, 1.0), (Signals.SIGTERM, 1.0), (Signals.SIGKILL, 2.0))
_LOG_LINES = 10
_NAMED = 7
_LOOK_S = 0.01
_SIMPLER = "; bring back something simpler, such as a number, a tensor or a state_dict()"


class Job:
    """A running program. `wait` returns when it is over; then `failure`, `notes` and `results` say how it went."""

    def __init__(self, warm: Warm, program: Program, options: Options, world: World | None) -> None:
        self.options = options
        self.world = world
        self.failure: Failure | None = None
        self.interrupted = False
        self.notes: list[str] = []
        self._program = program
        self._warm = warm
        self._state = (working_directory(), sys_path())
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._failures: list[Failure] = []
        self._unreadable: dict[str, str] = {}
        self._exits: list[tuple[int, int, int]] = []
        self._steps: list[tuple[Signals, float]] = []
        self._interrupts = 0
        self._deadline: float | None = None
        self._time_limit = None if options.timeout is None else time.monotonic() + options.timeout
        self._wake_read, self._wake_write = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._supervise, name="dtscope-job", daemon=True)
        self._thread.start()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.options.world_size

    @property
    def pids(self) -> list[int]:
        """Process ids by rank, [] before they are started."""
        return self.world.pids if self.world is not None else []

    @property
    def exits(self) -> list[tuple[int, int, int]]:
        """Rank, exit code (negative: a signal) and Unix time in ns of each rank that ended by itself, not by our signal."""
        return self._exits

    def unfinished(self) -> list[int]:
        """Ranks whose program is not over."""
        return [rank.number for rank in self._ranks if rank.ended is None and rank.exit is None]

    def poll(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits up to `timeout` seconds; True when it is over. Raises what kept the ranks from starting.

        By looking: two interrupts in short order break a wait for an Event (RuntimeError: release unlocked lock).
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._done.is_set():
            left = _LOOK_S if end is None else min(end - time.monotonic(), _LOOK_S)
            if left <= 0:
                return False
            time.sleep(left)
        if self._error is not None:
            raise self._error
        return True

    def interrupt(self) -> None:
        """Asks every rank to stop: SIGINT, after 5 s SIGTERM, then SIGKILL; a second call goes on at once.

        Before there are ranks, the second call kills the warm process that does not give them.
        """
        self._wake_write.send("interrupt")
        self._interrupts += 1
        if self._interrupts > 1 and self.world is None:
            self._warm.kill()

    def stop(self) -> None:
        """As interrupt, with 1 s for each."""
        self._wake_write.send("stop")

    def give_up(self, failure: Failure) -> None:
        """Ends the ranks, with a failure that somebody else saw."""
        self._wake_write.send(failure)

    def results(self) -> dict[str, Any]:
        """The pulled values by name, a list by rank where `x:all` was asked; what is missing or can't be read here is in `unpulled`."""
        found: dict[str, Any] = {}
        for name, everywhere in self._program.pulled.items():
            by_rank = [rank.ended.values.get(name) for rank in self._ranks if rank.ended is not None]
            wanted = by_rank if everywhere else by_rank[:1]
            if wanted and all(data is not None for data in wanted):
                self._unpack(name, [data for data in wanted if data is not None], found, everywhere=everywhere)
        return found

    def _unpack(self, name: str, data: list[bytes], found: dict[str, Any], *, everywhere: bool) -> None:
        try:
            loaded = [values.load(each) for each in data]
        except (Exception, SystemExit) as error:  # noqa: BLE001 # unpickling runs code of any type
            self._unreadable[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = loaded if everywhere else loaded[0]

    @property
    def unpulled(self) -> list[str]:
        """One line for each value that could not be brought back."""
        missing = [
            f"--pull {name}: rank {rank.number} has no such value to give: {reason}{'' if reason == NEVER_SET else _SIMPLER}"
            for rank in self._ranks
            if rank.ended is not None
            for name, reason in rank.ended.unpulled.items()
        ]
        unreadable = [f"--pull {name}: it can't be read in the notebook ({reason}){_SIMPLER}" for name, reason in self._unreadable.items()]
        return missing + unreadable

    @property
    def _ranks(self) -> list[Rank]:
        return self.world.ranks if self.world is not None else []

    def _supervise(self) -> None:
        try:
            self.world = self.world or LocalWorld(self._warm, self.options, self._state)
            self.world.run(self._program, self.options)
            while not self._over():
                self._watch()
            self._conclude()
        except BaseException as error:  # noqa: BLE001 # raised again by wait(), in the caller's thread
            self._error = error
            if self.world is not None:
                self.world.close()
        finally:
            self._done.set()

    def _over(self) -> bool:
        if self.options.keep and all(rank.ended is not None for rank in self._ranks if rank.exit is None):
            return True
        return all(rank.exit is not None for rank in self._ranks)

    def _watch(self) -> None:
        assert self.world is not None
        sources = {rank.status: rank for rank in self.world.running} | {rank.pipe: rank for rank in self._talking()}
        for ready in wait([self._wake_read, *sources], self._patience()):
            if ready is self._wake_read:
                self._asked(self._wake_read.recv())
            elif isinstance(ready, Connection):
                self._hear(sources[ready], ready)
        self._act()

    def _talking(self) -> Iterable[Rank]:
        return [rank for rank in self._ranks if rank.ended is None and not rank.pipe.closed]

    def _patience(self) -> float | None:
        moments = [moment for moment in (self._deadline, self._time_limit) if moment is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _asked(self, what: str | Failure) -> None:
        if isinstance(what, Failure):
            self._fail(what)
            self._deadline = time.monotonic()
            return
        if self.interrupted and self._steps:
            self._deadline = time.monotonic()
            return
        self.interrupted = True
        self._escalate(_INTERRUPT if what == "interrupt" else _STOP)

    def _hear(self, rank: Rank, source: Connection) -> None:
        if source is rank.pipe:
            self._hear_message(rank)
            return
        if rank.ended is None and not rank.pipe.closed and rank.pipe.poll():
            self._hear_message(rank)
        if rank.exit is None:
            rank.exit = read_exit(rank.status)
            self._judge_exit(rank)

    def _hear_message(self, rank: Rank) -> None:
        try:
            ended: Ended = pickle.loads(rank.pipe.recv_bytes())  # noqa: S301 # our own child, on a pipe nobody else has
        except (EOFError, OSError):
            rank.pipe.close()
            return
        rank.ended = ended
        if ended.reason:
            self._fail(Failure(rank.number, ended.time_ns, ended.reason, ended.traceback))

    def _judge_exit(self, rank: Rank) -> None:
        assert rank.exit is not None
        code = rank.exit.code
        if not self._steps:
            self._exits.append((rank.number, code, rank.exit.time_ns))
        if rank.exit.orphaned:
            assert self.world is not None
            self.world.bury(rank)
        if rank.ended is None and rank.exit.orphaned:
            how = self._warm.how_it_ended()
            reason = f"ended with the warm process that ranks are forked from, which {how}; the next profile starts a new one"
            self._fail(Failure(rank.number, rank.exit.time_ns, reason))
        elif rank.ended is None:
            log = last_lines(Path(self.options.logs[rank.number]), _LOG_LINES) or self._warm.last_words()
            self._fail(Failure(rank.number, rank.exit.time_ns, describe_exit(code), log=log))
        elif rank.ended.complete and code != 0 and not self._steps:
            clause = describe_exit(code).removesuffix(" before its program was complete")
            self.notes.append(f"rank {rank.number} {clause} after its program was complete: the run counts as good")

    def _fail(self, failure: Failure) -> None:
        if self._steps:
            return
        self._failures.append(failure)
        if self._deadline is None:
            assert self.world is not None
            self._deadline = time.monotonic() + self.world.settle_s

    def _act(self) -> None:
        now = time.monotonic()
        if self._time_limit is not None and now >= self._time_limit:
            self._time_limit = None
            self._run_out()
        if self._deadline is None or now < self._deadline:
            return
        if not self._steps:
            self._escalate(_STOP)
            return
        self._next_step()

    def _run_out(self) -> None:
        if self._steps or self._failures:
            return
        late, *others = [rank for rank in self._ranks if rank.ended is None]
        log = last_lines(Path(self.options.logs[late.number]), _LOG_LINES)
        reason = f"was not done after --timeout {self.options.timeout:g} s" + _nor(others)
        self._failures.append(Failure(late.number, time.time_ns(), reason, log=log))
        self._escalate(_INTERRUPT)

    def _escalate(self, steps: tuple[tuple[Signals, float], ...]) -> None:
        self._steps = list(steps)
        self._next_step()

    def _next_step(self) -> None:
        assert self.world is not None
        number, patience = self._steps[0] if len(self._steps) == 1 else self._steps.pop(0)
        for rank in self.world.running:
            if rank.ended is None or number is not Signals.SIGINT:
                self.world.signal(rank, number)
        self._deadline = time.monotonic() + patience

    def _conclude(self) -> None:
        assert self.world is not None
        self.failure = first(self._failures) if self._failures else None
        if not self.options.keep or any(rank.exit is not None for rank in self._ranks):
            for rank in self.world.running:
                self.world.signal(rank, Signals.SIGKILL)
            self.world.close()


def _nor(others: list[Rank]) -> str:
    """As in: was not done after 5 s, nor were ranks 1 and 2."""
    *more, last = [str(rank.number) for rank in others] or [""]
    if len(others) > _NAMED:
        return f", nor were {len(others)} others"
    return f", nor were ranks {', '.join(more)} and {last}" if more else f", nor was rank {last}" if last else ""
