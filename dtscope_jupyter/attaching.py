# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live views of runs that others started: a directory, a process, or a collector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter import places, rundir, stage
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from dtscope_jupyter.rundir import Attempt
    from dtscope_jupyter.session import Session


def attach(target: str, session: Session) -> None:
    """Shows live what is recorded at a directory or by a pid, and makes it the current run."""
    from dtscope_jupyter.run import Run

    attempt = of_process(int(target)) if target.isdigit() else places.newest_attempt(target)
    session.run = Run.of_directory(attempt.run, attempt.number)
    if not stage.has_widgets():
        stage.say(f"{places.shown(attempt.path)} is the current run; a live view needs a notebook, %dtscope diagnose and show work here")
        return
    from dtscope_jupyter.view.live import LiveView

    view = LiveView(attempt.path, world_size=session.run.world_size, title=session.run.name)
    stage.show(view.widget)
    view.start()
    session.views[attempt.path] = view


def detach(session: Session) -> int:
    """Ends the live views of attached runs, which go on; how many there were."""
    views, session.views = session.views, {}
    for view in views.values():
        view.finish("detached", "the run goes on")
    return len(views)


def of_process(pid: int) -> Attempt:
    """Where a process, or one that it started, records: its open files tell."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess as error:
        raise DtscopeError(f"no process has pid {pid}: give the pid of a rank or of its launcher") from error
    for member in family:
        try:
            folders = {Path(file.path).parent for file in member.open_files()}
        except psutil.AccessDenied as error:
            raise DtscopeError(f"process {pid} belongs to another user: attach to its run directory instead") from error
        except psutil.NoSuchProcess:
            continue
        for folder in folders:
            if folder.name.startswith("rank-") and rundir.is_run(folder.parent):
                return _attempt(folder.parent)
    raise DtscopeError(f"process {pid} records no run: start it with DTRAINSCOPE_ENABLE=1, or see %dtscope doctor {pid}")


def _attempt(path: Path) -> Attempt:
    run = path.parent if path.name.startswith("attempt-") else path
    return next(attempt for attempt in reversed(rundir.attempts(run)) if attempt.path == path)
