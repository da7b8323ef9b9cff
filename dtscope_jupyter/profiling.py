# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One profile from its start to its report: ranks, live view, output, values, errors."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import launch, places, rundir, stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import values
from dtscope_jupyter.launch.tail import Tail
from dtscope_jupyter.supervision import Watch
from dtscope_jupyter.view.text import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtscope_jupyter.launch.world import World
    from dtscope_jupyter.run import Run
    from dtscope_jupyter.rundir import Attempt
    from dtscope_jupyter.session import Request, Session

_PUMP_S = 0.05
_LOST = "what its ranks recorded and printed last may be lost too: make room there, or choose another place with --dir"


@contextmanager
def _interrupting(job: launch.Job) -> Iterator[None]:
    """Interrupts go to the ranks; as an exception, a second one might come while the first is being taken care of."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: job.interrupt())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


class Profile:
    """A running or finished profile; `follow` shows it to its end."""

    def __init__(self, program: launch.Program, request: Request, attempt: Attempt, session: Session, world: World | None) -> None:
        self.request = request
        self.attempt = attempt
        self.run: Run | None = None
        self._session = session
        self._started = time.monotonic()
        self._stopped = False
        self._view = self._open_view() if stage.has_widgets() else None
        self._tail = Tail(attempt.rank_path(0) / "log.txt", stage.write)
        self.job = launch.start(program, self._options(session.faults), session.warm, world)
        self._watcher = Watch(attempt, self.job.unfinished, self._hang)

    @property
    def title(self) -> str:
        """Name of the run."""
        return str(self.attempt.meta.get("name", self.attempt.run.name))

    @property
    def seconds(self) -> float:
        """Time since its start."""
        return time.monotonic() - self._started

    def follow(self, namespace: dict[str, Any]) -> None:
        """Shows output until the ranks are done, then the report; sets pulled values; raises what the run failed with."""
        with _interrupting(self.job):
            self._watch_or_give_up()
            state = self._settle()
        self._conclude(state, namespace, None)

    def _watch_or_give_up(self) -> None:
        while True:
            try:
                self._watch()
            except KeyboardInterrupt:  # of a thread that is not the main one, or sent by hand
                self.job.interrupt()
            except DtscopeError as error:
                self._give_up(error)
                raise
            else:
                return

    def follow_in_background(self, namespace: dict[str, Any]) -> None:
        """As `follow`, from a thread; the report takes the place that this call shows."""
        place = f"dtscope-{self.attempt.meta['created_ns']}"
        stage.show(_Pending(self), display_id=place)
        threading.Thread(target=self._follow_quietly, args=(namespace, place), name="dtscope-follow", daemon=True).start()

    def stop(self, patience: float) -> str:
        """Ends the ranks, waits up to `patience` seconds for that, and says what came of it; the follower says it no more."""
        self._stopped = True
        self.job.stop()
        where = places.shown(self.attempt.path)
        return f"{where}: {self._ended}" if self.job.wait(patience) else f"ending {where}"

    @property
    def _ended(self) -> str:
        return f"{count(self.job.world_size, 'rank')} ended after {self.seconds:.0f} s"

    def _give_up(self, error: DtscopeError) -> None:
        self._watcher.stop()
        self._record_outcome("failed", str(error))
        self._finish_view("failed", str(error))

    def _follow_quietly(self, namespace: dict[str, Any], place: str) -> None:
        try:
            self._watch_or_give_up()
            self._conclude(self._settle(), namespace, place)
        except (DtscopeError, launch.RankError, launch.Interrupted) as error:
            if not (self._stopped and isinstance(error, launch.Interrupted)):
                stage.say(str(error))

    def _watch(self) -> None:
        while not self.job.wait(_PUMP_S):
            self._tail.pump()
        self._tail.finish()

    def _hang(self, sentence: str, ranks: tuple[int, ...]) -> None:
        where = places.shown(self.attempt.path)
        stage.say(f"{sentence} Stacks and Flight Recorder dumps of every rank are in {where}.")
        if self.request.on_hang == "stop":
            self.job.give_up(launch.Failure(min(ranks, default=0), time.time_ns(), f"hang: {sentence}"))

    def _settle(self) -> str:
        """What must be done whatever comes: the run's end is written, its view ended, and it is the current run; returns its state."""
        self._watcher.stop()
        state, message = self._outcome()
        self._record_outcome(state, message)
        self._finish_view(state, message)
        if self.request.keep and self.job.world is not None and not self.job.world.gone():
            self._session.kept = self.job.world
        if self.attempt.path.is_dir():
            from dtscope_jupyter.run import Run

            self.run = self._session.run = Run.of_directory(self.attempt.run, self.attempt.number)
        return state

    def _conclude(self, state: str, namespace: dict[str, Any], place: str | None) -> None:
        for note in self.job.notes:
            stage.say(note)
        if self.job.failure is not None and (hint := values.left_behind(self.job.failure.reason, namespace)):
            stage.say(hint)
        try:
            namespace.update(self.job.results())
            self._report(place)
        finally:
            self._raise(state)

    def _outcome(self) -> tuple[str, str]:
        if self.job.failure is not None:
            return "failed", f"rank {self.job.failure.rank}: {self.job.failure.reason}"
        return ("interrupted", "interrupted by the user") if self.job.interrupted else ("done", "")

    def _record_outcome(self, state: str, message: str) -> None:
        end = {"state": state, "message": message, "ended_ns": time.time_ns(), "exits": self.job.exits if state != "done" else []}
        meta = self.attempt.meta | end
        try:
            rundir.write_json(self.attempt.path / "run.json", meta)
        except OSError as error:
            if not self.attempt.path.is_dir():
                return  # said where the report would stand
            stage.say(f"the end of the run could not be written to {places.shown(self.attempt.path)}: {error.strerror}; {_LOST}")

    def _report(self, place: str | None) -> None:
        if self.run is None:
            where = places.shown(self.attempt.path)
            raise DtscopeError(f"the run directory {where} was removed while its ranks ran: nothing is left to report; run the cell again")
        if stage.shell() is None:
            return
        from dtscope_jupyter.view.report import Report

        stage.show(Report(self.run), display_id=place, update=place is not None)

    def _raise(self, state: str) -> None:
        if self.job.failure is not None:
            raise launch.RankError(self.job.failure)
        if state == "interrupted":
            raise launch.Interrupted(self._ended)
        if self.job.unpulled:
            raise DtscopeError("; ".join(self.job.unpulled))

    def _options(self, faults: list[dict[str, Any]]) -> launch.Options:
        ranks = range(self.attempt.meta["world_size"])
        return launch.Options(
            logs=tuple(str(self.attempt.rank_path(rank) / "log.txt") for rank in ranks),
            configs=tuple(self._config(rank, len(ranks), faults) for rank in ranks),
            run_id=self.attempt.run.name,
            backend=self.request.backend,
            timeout=self.request.timeout,
            keep=self.request.keep,
        )

    def _config(self, rank: int, world_size: int, faults: list[dict[str, Any]]) -> dict[str, Any]:
        """Arguments of the agent's Config as JSON types: the kernel doesn't import what imports torch."""
        request = self.request
        config = {
            "folder": str(self.attempt.rank_path(rank)),
            "rank": rank,
            "world_size": world_size,
            "local_rank": rank,
            "budget": request.budget,
            "disk": request.disk,
            "faults": faults,
        }
        return config | ({} if request.collect is None else {"collect": sorted(request.collect)})

    def _open_view(self) -> Any:
        from dtscope_jupyter.view.live import LiveView

        view = LiveView(self.attempt.path, world_size=self.attempt.meta["world_size"], title=self.title)
        stage.show(view.widget)
        view.start()
        return view

    def _finish_view(self, state: str, message: str) -> None:
        if self._view is not None:
            self._view.finish(state, message)


class _Pending:
    """Holds the place of a report in the notebook."""

    def __init__(self, profile: Profile) -> None:
        self._text = f"{places.shown(profile.attempt.path)} runs in the background; its report will stand here"

    def __repr__(self) -> str:
        return self._text
