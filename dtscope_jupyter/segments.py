# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks as bytes: the two files of one table (see store.py), read and appended without decoding a row.

A *segment* is some index entries, word for word, and the blocks that they tell of, one after the other. Who
ships a table sends segments; who receives them appends them at the same offsets, so that both have the same files and
the end of the last block says how far the copy has come. Needs neither pyarrow nor torch.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENTRY = struct.Struct("<QIIIHHII")
ENTRY_BYTES = _ENTRY.size
MAX_BLOCK_BYTES = 256 * 2**20
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


class Entry(NamedTuple):
    """One checked index entry: a block of `length` bytes at `offset`, with its CRC and rows."""

    offset: int
    length: int
    crc: int
    rows: int

    @property
    def end(self) -> int:
        """Where the block ends."""
        return self.offset + self.length


def parse(raw: bytes | memoryview, position: int) -> Entry | None:
    """The entry at `position` of an index; None where its own CRC or its length is wrong."""
    offset, length, crc, rows, _, _, _, check = _ENTRY.unpack_from(raw, position)
    if length > MAX_BLOCK_BYTES or zlib.crc32(raw[position : position + ENTRY_BYTES - 4]) != check:
        return None
    return Entry(offset, length, crc, rows)


@dataclass(frozen=True, slots=True)
class Segment:
    """New blocks of one table: `entries` as in the index, `data` the blocks without gaps; `before` the end they follow."""

    table: str
    before: int
    entries: bytes
    data: bytes | memoryview
    end: int
    rows: int


class SegmentReader:
    """Follows a table's files from any place; a damaged block is left out and counted."""

    def __init__(self, folder: Path, table: str) -> None:
        """The files need not exist yet."""
        self.table = table
        self.damaged = 0
        self.end = 0
        self._data_path = folder / f"{table}.arrows"
        self._index_path = folder / f"{table}.index"
        self._position = 0

    def seek(self, end: int) -> None:
        """Goes on after the block that ends at `end`: what a copy has already."""
        self.end, self._position = end, 0
        while len(raw := self._read_index()) >= ENTRY_BYTES:
            for position in range(0, len(raw) // ENTRY_BYTES * ENTRY_BYTES, ENTRY_BYTES):
                entry = parse(raw, position)
                if entry and entry.offset >= end:
                    return
                self._position += ENTRY_BYTES

    def read(self, limit: int) -> Segment | None:
        """The next blocks, at least one and no more than `limit` bytes beyond it; None where nothing is new."""
        raw = self._read_index()
        if len(raw) < ENTRY_BYTES:
            return None
        before, entries, blocks, size, rows = self.end, bytearray(), [], 0, 0
        with open(self._data_path, "rb", buffering=0, opener=_no_link) as data:
            for position in range(0, len(raw) // ENTRY_BYTES * ENTRY_BYTES, ENTRY_BYTES):
                entry = parse(raw, position)
                if entry and size and size + entry.length > limit:
                    break
                self._position += ENTRY_BYTES
                block = self._block(data.fileno(), entry)
                if block is None or entry is None:
                    self.damaged += 1
                    continue
                entries += raw[position : position + ENTRY_BYTES]
                blocks.append(block)
                size, rows, self.end = size + entry.length, rows + entry.rows, entry.end
        return Segment(self.table, before, bytes(entries), b"".join(blocks), self.end, rows) if blocks else None

    def _read_index(self) -> bytes:
        try:
            with open(self._index_path, "rb", buffering=0, opener=_no_link) as index:
                return os.pread(index.fileno(), 2**20, self._position)
        except FileNotFoundError:
            return b""

    def _block(self, descriptor: int, entry: Entry | None) -> bytes | None:
        if entry is None or entry.offset < self.end:
            return None
        block = os.pread(descriptor, entry.length, entry.offset)
        return block if len(block) == entry.length and zlib.crc32(block) == entry.crc else None


class SegmentWriter:
    """Appends segments to a table's files in a folder, which is given by its descriptor; never follows a link."""

    def __init__(self, folder: int, table: str) -> None:
        """Takes up where an earlier writer stopped or was killed: half written blocks and entries are cut off."""
        self._data = os.open(f"{table}.arrows", os.O_RDWR | os.O_CREAT | _OPEN, 0o600, dir_fd=folder)
        try:
            self._index = os.open(f"{table}.index", os.O_RDWR | os.O_CREAT | _OPEN, 0o600, dir_fd=folder)
        except OSError:
            os.close(self._data)
            raise
        self.end, self._index_end = self._recover()

    def append(self, segment: Segment, limit: int) -> int:
        """Adds the blocks that are new here and returns their rows; DtscopeError, with nothing written, where one is wrong.

        Blocks before `end` are there already and left out. `limit` is the largest size the file may reach. OSError
        where the disk is full, with nothing left half written.
        """
        entries, data, end, rows = self._check(segment, limit)
        if not entries:
            return 0
        try:
            for place, block in data:
                _write(self._data, block, place)
            _write(self._index, entries, self._index_end)
        except OSError:
            os.ftruncate(self._index, self._index_end)
            os.ftruncate(self._data, self.end)
            raise
        self.end, self._index_end = end, self._index_end + len(entries)
        return rows

    def close(self) -> None:
        """Closes both files."""
        os.close(self._data)
        os.close(self._index)

    def _check(self, segment: Segment, limit: int) -> tuple[bytes, list[tuple[int, memoryview]], int, int]:
        view, end, rows = memoryview(segment.data), self.end, 0
        entries, runs = bytearray(), list[tuple[int, int, int]]()
        for raw, entry, place in _walk(segment):
            if entry.end <= self.end:
                continue
            if entry.offset < end or entry.offset > end + MAX_BLOCK_BYTES or entry.end > limit:
                raise DtscopeError(f"{segment.table}: a block at {entry.offset} does not follow {end} or passes {limit} bytes")
            if zlib.crc32(view[place : place + entry.length]) != entry.crc:
                raise DtscopeError(f"{segment.table}: the block at {entry.offset} is damaged")
            entries += raw
            if runs and entry.offset == end:
                runs[-1] = (runs[-1][0], runs[-1][1], place + entry.length)
            else:
                runs.append((entry.offset, place, place + entry.length))
            end, rows = entry.end, rows + entry.rows
        return bytes(entries), [(offset, view[first:last]) for offset, first, last in runs], end, rows

    def _recover(self) -> tuple[int, int]:
        size, index = os.fstat(self._data).st_size, os.pread(self._index, os.fstat(self._index).st_size, 0)
        whole, end = 0, 0
        for position in range(0, len(index) // ENTRY_BYTES * ENTRY_BYTES, ENTRY_BYTES):
            entry = parse(index, position)
            if entry and entry.end > size:
                break
            whole, end = position + ENTRY_BYTES, entry.end if entry else end
        os.ftruncate(self._index, whole)
        os.ftruncate(self._data, end)
        return end, whole


def _walk(segment: Segment) -> Iterator[tuple[bytes, Entry, int]]:
    place = 0
    if not segment.entries or len(segment.entries) % ENTRY_BYTES:
        raise DtscopeError(f"{segment.table}: {len(segment.entries)} bytes are no index entries")
    for position in range(0, len(segment.entries), ENTRY_BYTES):
        entry = parse(segment.entries, position)
        if entry is None:
            raise DtscopeError(f"{segment.table}: index entry {position // ENTRY_BYTES} is damaged")
        yield segment.entries[position : position + ENTRY_BYTES], entry, place
        place += entry.length
    if place != len(segment.data):
        raise DtscopeError(f"{segment.table}: {len(segment.data)} bytes of blocks where the entries tell of {place}")


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | _OPEN | os.O_NONBLOCK)


def _write(descriptor: int, data: bytes | memoryview, place: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, place)
        view, place = view[done:], place + done
