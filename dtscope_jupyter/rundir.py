# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The run directory: who writes what where. It is the only interface between ranks and readers.

    RUN/run.json                       what was started: name, world_size, created_ns, format, backend
    RUN/rank-0003/rank.json            who the rank is: pid, host, versions, devices
    RUN/rank-0003/TABLE.arrows .index  the tables of schema.py (see store.py)
    RUN/rank-0003/log.txt              its stdout and stderr
    RUN/rank-0003/trace-000012.json.gz a profiler window that began at step 12
    RUN/rank-0003/stacks-*.txt, flight_recorder-*.pkl or .json   taken at a hang or on request
    RUN/rank-0003/control.sock         the live rank listens here (0600)
    RUN/attempt-1/...                  the same again, for each further attempt
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dtscope_jupyter.errors import DtscopeError

FORMAT = 1
RUNS = "dtscope-runs"
"""Beside a notebook: the folder of its runs."""
_MOST_JSON_BYTES = 16 * 2**20
_RANK = re.compile(r"rank-(\d{4,7})")
_ATTEMPT = re.compile(r"attempt-([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a run: `path` holds its rank folders; `number` counts from 0."""

    run: Path
    number: int

    @property
    def path(self) -> Path:
        """The run directory itself for attempt 0."""
        return self.run if self.number == 0 else self.run / f"attempt-{self.number}"

    @property
    def meta(self) -> dict[str, Any]:
        """run.json, or {} where it is missing or damaged."""
        return read_json(self.path / "run.json")

    def ranks(self) -> list[int]:
        """The ranks that have a folder."""
        found = (_RANK.fullmatch(entry.name) for entry in _folders(self.path))
        return sorted(int(match[1]) for match in found if match)

    def rank_path(self, rank: int) -> Path:
        """Folder of a rank, whether or not it exists."""
        return self.path / f"rank-{rank:04d}"


def attempts(run: Path) -> list[Attempt]:
    """The attempts of a run directory, oldest first; [] where it holds none."""
    found = [Attempt(run, 0)] if is_run(run) else []
    numbers = (_ATTEMPT.fullmatch(entry.name) for entry in _folders(run))
    return found + [Attempt(run, n) for n in sorted(int(m[1]) for m in numbers if m)]


def is_run(path: Path) -> bool:
    """Whether `path` is a run directory."""
    return (path / "run.json").is_file() or any(_RANK.fullmatch(f.name) for f in _folders(path))


def is_recorded(path: Path) -> bool:
    """Whether `path` is a run directory with something of ours in it: others' traces may lie in folders that are named as ranks' are."""
    if (path / "run.json").is_file() or any(_ATTEMPT.fullmatch(folder.name) and is_run(folder) for folder in _folders(path)):
        return True
    ranks = (folder for folder in _folders(path) if _RANK.fullmatch(folder.name))
    return any((folder / "rank.json").is_file() or any(folder.glob("*.arrows")) for folder in ranks)


def is_rank(path: Path) -> bool:
    """Whether `path` is named as a rank's folder is."""
    return _RANK.fullmatch(path.name) is not None


def create_attempt(run: Path, meta: dict[str, Any]) -> Attempt:
    """Makes the run directory (0700), or a new attempt in one that holds a run, and writes run.json."""
    before = attempts(run)
    attempt = Attempt(run, before[-1].number + 1 if before else 0)
    try:
        attempt.path.mkdir(mode=0o700, parents=True, exist_ok=attempt.number == 0)
        write_json(attempt.path / "run.json", {"format": FORMAT, **meta})
    except OSError as error:
        message = f"can't write the run directory {str(run)!r}: {error.strerror}; choose another with --dir"
        raise DtscopeError(message) from error
    return attempt


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file, or {} where there is none: a pipe, a device and what is no small file are not read."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > _MOST_JSON_BYTES:
                return {}
            value = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def open_regular(path: Path) -> BinaryIO:
    """Opens a file of foreign hands to read; OSError, and never a wait, where it is a link, a pipe, a device or a folder."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return file


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replaces a small JSON file in one step (0600)."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(value, file, indent=1, default=str)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError:
        return []
