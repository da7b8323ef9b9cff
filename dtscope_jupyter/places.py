# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where runs lie: new ones beside the notebook, others where the user says."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import rundir
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from dtscope_jupyter.rundir import Attempt

FOLDER = rundir.RUNS

_LONGEST_NAME = 100


def working_directory() -> str:
    """The working directory; DtscopeError where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise DtscopeError("the notebook's working directory is gone: os.chdir to one that exists") from error


def create(directory: str | None, name: str | None, meta: dict[str, Any]) -> Attempt:
    """A new attempt in `directory`, or a new run in dtscope-runs/ of the working directory, with a folder for each rank."""
    working_directory()  # ranks start there
    if directory == "":
        raise DtscopeError("--dir is empty: name a folder, or leave it out")
    run = _new(_plain("run" if name is None else name)) if directory is None else _named(directory)
    _writable_name(run)
    name = name or (run.name if directory else "run")
    attempt = rundir.create_attempt(run.absolute(), {"name": name, **meta})
    try:
        for rank in range(meta["world_size"]):
            attempt.rank_path(rank).mkdir(mode=0o700)
    except OSError as error:
        raise DtscopeError(f"can't write the run directory {str(run)!r}: {error.strerror}; choose another with --dir") from error
    return attempt


def _writable_name(run: Path) -> None:
    try:
        os.fsencode(run.absolute())
    except UnicodeEncodeError as error:
        reason = f"{error.object[error.start : error.end]!r} is no character of this process' locale ({error.encoding})"
        raise DtscopeError(f"can't write the run directory {str(run)!r}: {reason}; use others, or set PYTHONUTF8=1") from error


def _named(directory: str) -> Path:
    try:
        run = Path(directory).expanduser().absolute()
        is_file = _is_no_folder(run)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DtscopeError(f"can't write the run directory {directory!r}: {reason}; choose another with --dir") from error
    if is_file:
        raise DtscopeError(f"--dir {str(run)!r} is a file: name a folder that is a run, is empty or is yet to be made")
    if not rundir.is_run(run):
        _refuse_shared(directory, run)
    return run


def _refuse_shared(directory: str, run: Path) -> None:
    """A run takes a folder for itself: its files would lie among others, and a folder of runs would be taken for one."""
    if Path(working_directory()).is_relative_to(run.resolve()):
        raise DtscopeError(f"--dir {directory!r} holds the notebook itself: name a folder for the run alone, e.g. runs/first")
    if _holds_runs(run):
        raise DtscopeError(f"--dir {directory!r} is a folder of runs: name one inside it, e.g. {str(Path(directory, 'first'))!r}")


def _holds_runs(folder: Path) -> bool:
    try:
        return any(entry.is_dir() and rundir.is_run(entry) for entry in folder.iterdir())
    except OSError:
        return False  # it is yet to be made, or what is wrong with it is told when it is written to


def _is_no_folder(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(path.stat().st_mode)


def runs(base: Path | None = None) -> list[Path]:
    """The run directories in dtscope-runs/, oldest first."""
    folder = (base or Path(working_directory())) / FOLDER
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if path.is_dir() and rundir.is_run(path)), key=_created)


def newest_attempt(target: str) -> Attempt:
    """The newest attempt of a run directory, or of the newest run of a folder of runs."""
    path = Path(target).expanduser()
    try:
        return _newest_attempt(target, path)
    except OSError as error:
        raise DtscopeError(_unreadable(target, path, error)) from error


def _newest_attempt(target: str, path: Path) -> Attempt:
    if not path.is_dir():
        wrong = "is no directory" if path.exists() else "is no directory yet (a job makes it as its ranks begin)"
        raise DtscopeError(f"{target!r} {wrong}: give a run directory, a folder of runs, a pid or tcp://host:port")
    if not rundir.attempts(path):
        inside = [folder for folder in path.iterdir() if folder.is_dir() and rundir.is_run(folder)] or runs(path)
        if not inside:
            raise DtscopeError(f"{target!r} holds no run: give a run directory or a folder of runs")
        path = max(inside, key=_created)
    return rundir.attempts(path.absolute())[-1]


def _unreadable(target: str, path: Path, error: OSError) -> str:
    try:
        owner = path.stat().st_uid
    except OSError:
        owner = os.geteuid()
    if isinstance(error, PermissionError) and owner != os.geteuid():
        return f"{target!r} belongs to user {owner}, who keeps it private: open it as that user (sudo -u '#{owner}') or by a collector"
    return f"{target!r} can't be read ({error.strerror}): give a directory that you may read"


def expand(pattern: str) -> list[str]:
    """The paths that a pattern with * or ? names; the text itself where it has neither."""
    if not any(sign in pattern for sign in "*?["):
        return [pattern]
    found = sorted(glob.glob(str(Path(pattern).expanduser())))  # noqa: PTH207 # absolute patterns too
    if not found:
        raise DtscopeError(f"{pattern!r} matches nothing here")
    return found


def shown(path: Path) -> str:
    """A path as a reader beside the notebook would write it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)


def folder() -> Path:
    """dtscope-runs/ of the working directory, made with its own .gitignore where it is missing."""
    made = Path(working_directory()) / FOLDER
    try:
        made.mkdir(mode=0o700, exist_ok=True)
        ignore = made / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise DtscopeError(f"can't write {str(made)!r}: {error.strerror}; choose another place with --dir") from error
    return made


def _new(name: str) -> Path:
    inside = folder()
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    taken = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    return next(inside / text for text in taken if not (inside / text).exists())


def _plain(name: str) -> str:
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    if not plain or len(plain) > _LONGEST_NAME:
        raise DtscopeError(f"--name {name!r} makes no folder name: use up to {_LONGEST_NAME} letters, digits, dots and dashes")
    return plain


def _created(run: Path) -> tuple[int, str]:
    created = rundir.attempts(run)[-1].meta.get("created_ns")
    return (created if isinstance(created, int) else 0, run.name)
