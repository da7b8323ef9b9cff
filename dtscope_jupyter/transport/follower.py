# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a notebook has not seen yet of a run in the collector's directory."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from typing import TYPE_CHECKING

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.segments import SegmentReader
from dtscope_jupyter.transport import wire
from dtscope_jupyter.transport.files import read_file
from dtscope_jupyter.transport.wire import Part, Place

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.transport.archive import Archive
    from dtscope_jupyter.transport.wire import Ends

_RESCAN_S = 0.5


def runs_of(folder: Path) -> list[str]:
    """Names of the runs in a directory, the one that was begun last first."""
    found: list[tuple[int, str]] = []
    for entry in os.scandir(folder):
        if re.match(wire.RUN, entry.name) and entry.is_dir(follow_symlinks=False):
            begun = [attempt.path.stat().st_mtime_ns for attempt in rundir.attempts(folder / entry.name)]
            found += [(max(begun), entry.name)] if begun else []
    return [name for _, name in sorted(found, reverse=True)]


class Follower:
    """One notebook's place in one run; asks the disk only for folders that were written since."""

    def __init__(self, archive: Archive, run: str, have: dict[str, Ends]) -> None:
        """`have` tells how far the notebook's copy has come, by `wire.folder_key` and file."""
        self._archive = archive
        self._run = run
        self._have = have
        self._folders: dict[Place, _Folder] = {}
        self._turn: deque[_Folder] = deque()
        self._scanned = 0.0

    def news(self, limit: int) -> tuple[wire.News, bytes]:
        """What is new, about `limit` bytes of it, each folder in its turn."""
        self._scan()
        folders: list[Place] = []
        parts: list[Part] = []
        payload: list[bytes] = []
        size = 0
        for _ in range(len(self._turn)):
            if size >= limit:
                break
            folder = self._turn[0]
            self._turn.rotate(-1)
            for part, data in folder.news(self._archive.changes(folder.place), limit - size):
                folders.append(folder.place)
                parts.append(part)
                payload += data
                size += part.size
        return wire.News(folders, parts), b"".join(payload)

    def _scan(self) -> None:
        now = time.monotonic()
        if now - self._scanned < _RESCAN_S:
            return
        self._scanned = now
        for attempt in rundir.attempts(self._archive.path / self._run):
            for rank in attempt.ranks():
                place = Place(self._run, attempt.number, rank)
                if place not in self._folders:
                    ends = self._have.get(wire.folder_key(place), {})
                    self._folders[place] = _Folder(place, attempt.path, ends)
                    self._turn.append(self._folders[place])


class _Folder:
    """One rank's files, and how far they were sent."""

    def __init__(self, place: Place, attempt: Path, ends: Ends) -> None:
        self.place = place
        self._attempt = attempt
        self._path = attempt / f"rank-{place.rank:04d}"
        self._ends = dict(ends)
        self._readers: dict[str, SegmentReader] = {}
        self._whole: dict[str, tuple[int, int]] = {}
        self._sent_at = -1

    def news(self, changes: int, limit: int) -> list[tuple[Part, list[bytes]]]:
        """Parts and their bytes; [] without a look at the disk where `changes` is what it was at the end of the last look."""
        if changes == self._sent_at and changes:
            return []
        found, room = self._small_files(), limit
        for table in schema.TABLES:
            room = limit - sum(part.size for part, _ in found)
            if room <= 0:
                break
            found += self._table(table, room)
        if not found:
            self._sent_at = changes
        return found

    def _table(self, table: str, room: int) -> list[tuple[Part, list[bytes]]]:
        reader = self._readers.get(table)
        if reader is None:
            if not (self._path / f"{table}.index").exists():
                return []
            reader = self._readers[table] = SegmentReader(self._path, table)
            reader.seek(self._ends.get(table, 0))
        segment = reader.read(room)
        if segment is None:
            return []
        head, size = len(segment.entries), len(segment.entries) + len(segment.data)
        return [(Part("table", table, segment.before, head, size), [segment.entries, bytes(segment.data)])]

    def _small_files(self) -> list[tuple[Part, list[bytes]]]:
        found = [self._replaced(self._attempt / "run.json"), self._replaced(self._path / "rank.json")]
        with os.scandir(self._path) as entries:
            found += [self._grown(entry) for entry in entries if wire.GROWING.match(entry.name)]
        return [item for item in found if item]

    def _replaced(self, path: Path) -> tuple[Part, list[bytes]] | None:
        data, mark = read_file(path, 0, wire.MAX_WHOLE_BYTES)
        if mark is None or self._whole.get(path.name) == mark:
            return None
        self._whole[path.name] = mark
        return Part("whole", path.name, 0, 0, len(data)), [data]

    def _grown(self, entry: os.DirEntry[str]) -> tuple[Part, list[bytes]] | None:
        end = self._ends.get(entry.name, 0)
        if entry.stat(follow_symlinks=False).st_size <= end:
            return None
        data, _ = read_file(self._path / entry.name, end, wire.MAX_PARTS_BYTES)
        if not data:
            return None
        self._ends[entry.name] = end + len(data)
        return Part("grow", entry.name, end, 0, len(data)), [data]
