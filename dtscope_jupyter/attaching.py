# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live views of runs that others started: a directory, a process, or a collector."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import asking, debugserver, places, remote, rundir, stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import family, started

if TYPE_CHECKING:
    from dtscope_jupyter.run import Run
    from dtscope_jupyter.rundir import Attempt
    from dtscope_jupyter.session import Session
    from dtscope_jupyter.transport.mirroring import Mirror
    from dtscope_jupyter.view.live import LiveView


_FIRST_NEWS_S = 10.0
_POLL_S = 0.02


class Attachment:
    """One live view, and what keeps it fed: ranks that were told to record, a collector that is followed."""

    def __init__(self, attempt: Attempt, view: LiveView | None, watcher: Watcher, mirror: Mirror | None) -> None:
        self.attempt = attempt
        self._view = view
        self._watcher = watcher
        self._mirror = mirror

    def end(self, why: str) -> None:
        """Ends the view; ranks that recorded only for it stop recording, the job goes on."""
        if self._mirror is not None:
            self._mirror.stop()
        self._watcher.leave()
        if self._view is not None:
            self._view.finish("detached", why)


class Watcher:
    """Ranks that record only while somebody watches, and one who does."""

    def __init__(self, attempt: Attempt) -> None:
        """Those that are idle begin to record, all with the same step; others are told that one more watches."""
        self._attempt = attempt
        self._by = {"id": uuid.uuid4().hex, "pid": os.getpid(), "started": started(os.getpid())}
        replies = {rank: reply for rank, reply in asking.ask_ranks(attempt, {"command": "status"}).items() if reply.get("ok")}
        idle = [rank for rank, reply in replies.items() if reply.get("recording") is False]
        self._ranks = idle + [rank for rank, reply in replies.items() if reply.get("recording") and reply.get("watchers")]
        answers = asking.ask_ranks(attempt, {"command": "attach", "hold": True, "by": self._by}, self._ranks)
        self._begin(idle, answers)

    def leave(self) -> None:
        """Ranks that nobody else watches stop recording; the job goes on."""
        asking.ask_ranks(self._attempt, {"command": "detach", "by": self._by}, self._ranks)

    def _begin(self, idle: list[int], answers: dict[int, dict[str, Any]]) -> None:
        """Tells the ranks that were idle which step to begin with: agent/joining.py says why."""
        told = [(answers[rank]["sequence"], answers[rank]["step"]) for rank in idle if answers.get(rank, {}).get("ok")]
        if told:
            after, step = (max(numbers) for numbers in zip(*told, strict=True))
            asking.ask_ranks(self._attempt, {"command": "begin", "after": after, "first": step + 1}, idle)


def attach(target: str, session: Session, keys: str | None = None, run: str = "") -> None:
    """Shows live what is recorded at a directory, by a pid or at a collector, and makes it the current run."""
    from dtscope_jupyter.run import Run

    mirror = _mirror(target, keys, run) if target.startswith("tcp://") else None
    where = target if mirror is None else str(mirror.path)
    attempt = of_process(int(where)) if where.isdigit() else places.newest_attempt(where)
    _check_format(attempt)
    if attempt.path in session.attached:
        session.attached.pop(attempt.path).end("attached again")
    watcher = Watcher(attempt)
    session.run = found = Run.of_directory(attempt.run, attempt.number)  # session.run would read all its tables
    session.attached[attempt.path] = Attachment(attempt, _view(attempt, found), watcher, mirror)


def _check_format(attempt: Attempt) -> None:
    found = attempt.meta.get("format", rundir.FORMAT)
    if isinstance(found, int) and found > rundir.FORMAT:
        where = places.shown(attempt.path)
        raise DtscopeError(f"{where} was recorded in format {found}, this release reads {rundir.FORMAT}: pip install -U dtscope-jupyter")


def detach(session: Session) -> int:
    """Ends the live views of attached runs, which go on; how many there were."""
    attached, session.attached = session.attached, {}
    for attachment in attached.values():
        attachment.end("the run goes on")
    return len(attached)


def of_process(pid: int) -> Attempt:
    """Where a process, or one that it started, records; else what its debug server tells now, as a run of its own; else it is armed."""
    for member in family(pid):
        try:
            folder = member.rank_folder
        except PermissionError as error:
            if member.owner == os.geteuid():
                continue  # it has ended, its parent has not taken note
            raise DtscopeError(f"process {pid} belongs to another user: attach to its run directory instead") from error
        except OSError:
            continue
        if folder is not None:
            return _attempt(folder.parent)
    try:
        if servers := debugserver.servers(pid):
            return rundir.attempts(debugserver.write(servers, f"pid-{pid}", places.folder()))[-1]
        armed = remote.arm(family(pid), Path(places.working_directory()) / places.FOLDER)
        if armed is not None:
            return _attempt(armed.parent)
    except (FileNotFoundError, ProcessLookupError, PermissionError) as error:
        raise DtscopeError(f"process {pid} ended while it was attached to") from error
    raise DtscopeError(f"process {pid} records no run: start it with DTRAINSCOPE_ENABLE=1 or =attach; %dtscope doctor {pid} tells more")


def _attempt(path: Path) -> Attempt:
    run = path.parent if path.name.startswith("attempt-") else path
    return next(attempt for attempt in reversed(rundir.attempts(run)) if attempt.path == path)


def _view(attempt: Attempt, run: Run) -> LiveView | None:
    if not stage.has_widgets():
        stage.say(f"{places.shown(attempt.path)} is the current run; a live view needs a notebook, %dtscope diagnose works here too")
        return None
    from dtscope_jupyter.view.live import LiveView

    view = LiveView(attempt.path, world_size=run.world_size, title=run.name)
    stage.show(view.widget)
    view.start()
    return view


def _mirror(endpoint: str, keys: str | None, run: str) -> Mirror:
    from dtscope_jupyter import transport

    file = keys or os.environ.get("DTRAINSCOPE_KEYS")
    if file is None:
        raise DtscopeError(f"{endpoint} needs the keys that dtscope keys made for notebooks: give --keys FILE, or set DTRAINSCOPE_KEYS")
    mirror = transport.mirror(endpoint, Path(file).expanduser(), places.folder(), run)
    deadline = time.monotonic() + _FIRST_NEWS_S
    while not rundir.attempts(mirror.path):
        if time.monotonic() > deadline:
            mirror.stop()
            raise DtscopeError(f"{endpoint} has sent nothing of {mirror.path.name} within {_FIRST_NEWS_S:g} s: try again, or name a --run")
        time.sleep(_POLL_S)
    return mirror
