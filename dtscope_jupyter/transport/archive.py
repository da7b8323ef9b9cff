# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The directory of runs that a collector (or a notebook's mirror) writes: every name checked, no link followed, all 0600.

Nothing but `Place` and the names that wire.py allows ever becomes a path, and every folder is opened relative to its
parent's descriptor, so nothing outside the directory is read or written whatever a rank or the directory holds.
"""

from __future__ import annotations

import os
import re
import resource
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dtscope_jupyter import schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.segments import Segment, SegmentWriter
from dtscope_jupyter.transport import wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dtscope_jupyter.transport.wire import Ends, Part, Place

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TABLE_FILE = re.compile(r"([a-z_]+)\.index\Z")


def open_root(path: Path) -> int:
    """The descriptor of a directory of ours (made 0700 if missing); DtscopeError where it is a link or another user's."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, _FOLDER)
    except OSError as error:
        raise DtscopeError(f"can't use {str(path)!r} as the directory of runs: {error.strerror}; choose another with --dir") from error
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise DtscopeError(f"{str(path)!r} belongs to another user; choose a directory of your own with --dir")
    return descriptor


class Archive:
    """All folders that are written now; keeps the number of open files below the process's limit."""

    def __init__(self, path: Path, disk: int) -> None:
        """`disk` is the bytes that one rank's files may have."""
        self.path = path
        self._root = open_root(path)
        self._disk = disk
        self._folders: OrderedDict[Place, RankFolder] = OrderedDict()
        self._open_files = 0
        self._allowed_files = _raise_file_limit() * 3 // 4

    def folder(self, place: Place) -> RankFolder:
        """The folder of a place, made where it is missing; OSError where that can't be."""
        found = self._folders.get(place)
        if found is None:
            found = self._folders[place] = RankFolder(self._root, place, self._disk)
        return found

    def take(self, folder: RankFolder, part: Part, head: memoryview, body: memoryview) -> int:
        """As `RankFolder.take`, closing the files that were not written for longest where too many are open."""
        before = folder.open_files
        try:
            return folder.take(part, head, body)
        finally:
            self._folders.move_to_end(folder.place)
            self._open_files += folder.open_files - before
            while self._open_files > self._allowed_files:
                oldest = next(iter(self._folders.values()))
                self._open_files -= oldest.open_files
                oldest.rest()
                self._folders.move_to_end(oldest.place)

    def changes(self, place: Place) -> int:
        """Grows with each part that is written there; 0 for a folder that nobody writes."""
        found = self._folders.get(place)
        return found.changes if found else 0

    def close(self) -> None:
        """Closes all files."""
        for folder in self._folders.values():
            folder.rest()
        self._folders.clear()
        os.close(self._root)


class RankFolder:
    """One rank's folder; its tables' files stay open from one write to the next."""

    def __init__(self, root: int, place: Place, limit: int) -> None:
        """`root` is the descriptor of the directory of runs; `limit` the bytes that the rank's files may have in all."""
        self.place = place
        self.changes = 0
        self._root = root
        self._limit = limit
        self._writers: dict[str, SegmentWriter] = {}
        self.ends = self._found()
        self._size = sum(self.ends.values())

    @property
    def open_files(self) -> int:
        """Descriptors that it holds."""
        return 2 * len(self._writers)

    def claim(self, token: str) -> bool:
        """Whether this folder is written by the rank process that has `token`; the first to ask gets it."""
        with self._opened() as folder:
            try:
                descriptor = os.open(".origin", _FILE | os.O_EXCL, 0o600, dir_fd=folder)
            except FileExistsError:
                with os.fdopen(os.open(".origin", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
                    return file.read(64) == token.encode()
            with os.fdopen(descriptor, "wb") as file:
                file.write(token.encode())
        return True

    def take(self, part: Part, head: memoryview, body: memoryview) -> int:
        """Writes one part if it is new, and returns its rows; `ends` tells how far the file is then.

        DtscopeError for a name or bytes that are not allowed, OSError where the disk is full: nothing of the part is
        written then.
        """
        if self._size + part.size > self._limit:
            raise DtscopeError(f"rank {self.place.rank} of {self.place.run} has reached its {self._limit} bytes; raise --disk")
        before = self.ends.get(part.name, 0)
        rows = {"table": self._table, "grow": self._grow, "whole": self._whole}[part.kind](part, head, body)
        self._size += max(0, self.ends.get(part.name, 0) - before)
        self.changes += 1
        return rows

    def rest(self) -> None:
        """Closes the tables' files until they are written again."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _table(self, part: Part, head: memoryview, body: memoryview) -> int:
        if part.name not in schema.TABLES:
            raise DtscopeError(f"there is no table {part.name!r}; the rank's version may be newer than the collector's")
        writer = self._writers.get(part.name)
        if writer is None:
            with self._opened() as folder:
                writer = self._writers[part.name] = SegmentWriter(folder, part.name)
            self.ends[part.name] = writer.end
        if part.before > writer.end:
            return 0
        segment = Segment(part.name, part.before, bytes(head), body, 0, 0)
        rows = writer.append(segment, self._limit)
        self.ends[part.name] = writer.end
        return rows

    def _grow(self, part: Part, _head: memoryview, body: memoryview) -> int:
        if not wire.GROWING.match(part.name):
            raise DtscopeError(f"{part.name!r} is no file that a rank ships")
        end = self.ends.get(part.name, 0)
        if part.before <= end < part.before + len(body):
            with self._opened() as folder:
                _write(folder, part.name, body[end - part.before :], end)
            self.ends[part.name] = part.before + len(body)
        return 0

    def _whole(self, part: Part, _head: memoryview, body: memoryview) -> int:
        if part.name not in wire.WHOLE or len(body) > wire.MAX_WHOLE_BYTES:
            raise DtscopeError(f"{part.name!r} of {len(body)} bytes is no file that a rank ships")
        temporary = f".{part.name}.{self.place.rank}"
        with self._opened(up=part.name == "run.json") as folder:
            _write(folder, temporary, body, 0, os.O_TRUNC)
            os.replace(temporary, part.name, src_dir_fd=folder, dst_dir_fd=folder)
        return 0

    def _found(self) -> Ends:
        ends: Ends = {}
        with self._opened() as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - by descriptor
                table = _TABLE_FILE.match(name)
                if table and table[1] in schema.TABLES:
                    writer = SegmentWriter(folder, table[1])
                    ends[table[1]] = writer.end
                    writer.close()
                elif wire.GROWING.match(name):
                    ends[name] = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        return ends

    @contextmanager
    def _opened(self, *, up: bool = False) -> Iterator[int]:
        """The descriptor of the folder, or of its attempt's."""
        place = self.place
        names = [place.run, *([f"attempt-{place.attempt}"] if place.attempt else []), *([] if up else [f"rank-{place.rank:04d}"])]
        descriptor = os.dup(self._root)
        try:
            for name in names:
                inner = _subfolder(descriptor, name)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _write(folder: int, name: str, data: memoryview, place: int, flags: int = 0) -> None:
    descriptor = os.open(name, _FILE | flags, 0o600, dir_fd=folder)
    try:
        while data:
            done = os.pwrite(descriptor, data, place)
            data, place = data[done:], place + done
    finally:
        os.close(descriptor)


def _subfolder(parent: int, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _raise_file_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 2**20
