# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live views of runs that others started: a directory, a process, or a collector."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter import asking, debugserver, places, remote, rundir, stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtscope_jupyter.run import Run
    from dtscope_jupyter.rundir import Attempt
    from dtscope_jupyter.session import Session
    from dtscope_jupyter.transport.mirroring import Mirror
    from dtscope_jupyter.view.live import LiveView


_FIRST_NEWS_S = 10.0
_POLL_S = 0.02


class Attachment:
    """One live view, and what keeps it fed: ranks that were told to record, a collector that is followed."""

    def __init__(self, attempt: Attempt, view: LiveView | None, woken: list[int], mirror: Mirror | None) -> None:
        self.attempt = attempt
        self._view = view
        self._woken = woken
        self._mirror = mirror

    def end(self, why: str) -> None:
        """Ends the view; ranks that recorded only for it stop recording, the job goes on."""
        if self._mirror is not None:
            self._mirror.stop()
        asking.ask_ranks(self.attempt, {"command": "detach"}, self._woken)
        if self._view is not None:
            self._view.finish("detached", why)


def attach(target: str, session: Session, keys: str | None = None, run: str = "") -> None:
    """Shows live what is recorded at a directory, by a pid or at a collector, and makes it the current run."""
    from dtscope_jupyter.run import Run

    mirror = _mirror(target, keys, run) if target.startswith("tcp://") else None
    where = target if mirror is None else str(mirror.path)
    attempt = of_process(int(where)) if where.isdigit() else places.newest_attempt(where)
    _check_format(attempt)
    if attempt.path in session.attached:
        session.attached.pop(attempt.path).end("attached again")
    woken = _wake(attempt)
    session.run = Run.of_directory(attempt.run, attempt.number)
    session.attached[attempt.path] = Attachment(attempt, _view(attempt, session.run), woken, mirror)


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
    for member in _family(pid):
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
        if debugserver.find(Process(pid)) is not None:
            return rundir.attempts(debugserver.take(pid, places.folder()))[-1]
        armed = remote.arm(_family(pid), Path(places.working_directory()) / places.FOLDER)
        if armed is not None:
            return _attempt(armed.parent)
    except (FileNotFoundError, ProcessLookupError, PermissionError) as error:
        raise DtscopeError(f"process {pid} ended while it was attached to") from error
    raise DtscopeError(f"process {pid} records no run: start it with DTRAINSCOPE_ENABLE=1 or =attach; %dtscope doctor {pid} tells more")


def _family(pid: int) -> Iterator[Process]:
    import psutil

    yield Process(pid)
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return
    for child in children:
        try:
            yield Process(child.pid)
        except DtscopeError:
            continue


def _attempt(path: Path) -> Attempt:
    run = path.parent if path.name.startswith("attempt-") else path
    return next(attempt for attempt in reversed(rundir.attempts(run)) if attempt.path == path)


def _wake(attempt: Attempt) -> list[int]:
    """Ranks that are armed but don't record begin to; those."""
    replies = asking.ask_ranks(attempt, {"command": "status"})
    idle = [rank for rank, reply in replies.items() if reply.get("ok") and reply.get("recording") is False]
    asking.ask_ranks(attempt, {"command": "attach"}, idle)
    return idle


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
