# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks as bytes: the two files of one table, followed and appended without decoding a row; store.py makes rows of them.

`NAME.arrows` is an Arrow IPC stream: the schema message, then one record batch message a block.
`NAME.index` holds one entry a block, 32 bytes, little endian:

    u64 offset, u32 length, u32 crc of the block, u32 rows, u16 version, u16 kind, u32 0, u32 crc of the entry

The block is written first and its entry second, so a reader that follows the index never sees half a block.

A *segment* is some index entries, word for word, and the blocks that they tell of, one after the other. Who
ships a table sends segments; who receives them appends them at the same offsets, so that both have the same files and
the end of the last block says how far the copy has come. Needs neither pyarrow nor torch.
"""

from __future__ import annotations

import errno
import os
import stat
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
_CHECKED = ENTRY_BYTES - 4
_INDEX_BYTES = 2**20
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


class Entry(NamedTuple):
    """One index entry: a block of `length` bytes at `offset`, its CRC and rows, and by which release's schema it is of what kind."""

    offset: int
    length: int
    crc: int
    rows: int
    version: int = 0
    kind: int = 0

    @property
    def end(self) -> int:
        """Where the block ends."""
        return self.offset + self.length


def pack(entry: Entry) -> bytes:
    """The entry as it stands in an index, its own CRC at the end."""
    head = _ENTRY.pack(*entry, 0, 0)[:_CHECKED]
    return head + zlib.crc32(head).to_bytes(4, "little")


def parse(raw: bytes | memoryview, position: int) -> Entry | None:
    """The entry at `position` of an index; None where its own CRC or its length is wrong."""
    *entry, _, check = _ENTRY.unpack_from(raw, position)
    if entry[1] > MAX_BLOCK_BYTES or zlib.crc32(raw[position : position + _CHECKED]) != check:
        return None
    return Entry._make(entry)


class Follower:
    """A place in a table's two files, which need not exist yet; entries and blocks are checked as they are read."""

    def __init__(self, folder: Path, table: str) -> None:
        """Begins at their beginning."""
        self.table = table
        self.end = 0
        self._data_path = folder / f"{table}.arrows"
        self._index_path = folder / f"{table}.index"
        self._position = 0

    def _read_index(self, most: int | None = None) -> bytes:
        """Whole entries from the place on, up to `most` bytes where that is said; OSError where the index is no regular file."""
        try:
            descriptor = open_regular(self._index_path)
        except FileNotFoundError:
            return b""
        try:
            size = os.fstat(descriptor).st_size if most is None else 0
            raw = os.pread(descriptor, max(0, size - self._position) if most is None else most, self._position)
        finally:
            os.close(descriptor)
        return raw[: len(raw) // ENTRY_BYTES * ENTRY_BYTES]

    def _read_block(self, descriptor: int, entry: Entry) -> bytes | None:
        """A block behind those read before; None where it is damaged or comes again."""
        if entry.offset < self.end:
            return None
        block = os.pread(descriptor, entry.length, entry.offset)
        if len(block) != entry.length or zlib.crc32(block) != entry.crc:
            return None
        self.end = entry.end
        return block


@dataclass(frozen=True, slots=True)
class Segment:
    """New blocks of one table: `entries` as in the index, `data` the blocks without gaps; `before` the end they follow."""

    table: str
    before: int
    entries: bytes
    data: bytes | memoryview
    end: int
    rows: int


class SegmentReader(Follower):
    """Follows a table's files from any place; a damaged block is left out and counted."""

    def __init__(self, folder: Path, table: str) -> None:
        """The files need not exist yet."""
        super().__init__(folder, table)
        self.damaged = 0

    def seek(self, end: int) -> None:
        """Goes on after the block that ends at `end`: what a copy has already."""
        self.end, self._position = end, 0
        while raw := self._read_index(_INDEX_BYTES):
            for position in range(0, len(raw), ENTRY_BYTES):
                entry = parse(raw, position)
                if entry and entry.offset >= end:
                    return
                self._position += ENTRY_BYTES

    def read(self, limit: int) -> Segment | None:
        """The next blocks, at least one and no more than `limit` bytes beyond it; None where nothing is new."""
        raw = self._read_index(_INDEX_BYTES)
        if not raw:
            return None
        descriptor = open_regular(self._data_path)
        try:
            return self._segment(descriptor, raw, limit)
        finally:
            os.close(descriptor)

    def _segment(self, descriptor: int, raw: bytes, limit: int) -> Segment | None:
        before, entries, blocks, size, rows = self.end, bytearray(), [], 0, 0
        for position in range(0, len(raw), ENTRY_BYTES):
            entry = parse(raw, position)
            if entry and size and size + entry.length > limit:
                break
            self._position += ENTRY_BYTES
            block = self._read_block(descriptor, entry) if entry else None
            if block is None or entry is None:
                self.damaged += 1
                continue
            entries += raw[position : position + ENTRY_BYTES]
            blocks.append(block)
            size, rows = size + entry.length, rows + entry.rows
        return Segment(self.table, before, bytes(entries), b"".join(blocks), self.end, rows) if blocks else None


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


def open_regular(path: Path) -> int:
    """Opens a file for reading, never a pipe that would block nor what a link points to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OPEN)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def _write(descriptor: int, data: bytes | memoryview, place: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, place)
        view, place = view[done:], place + done
