# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks on disk: append-only Arrow IPC with a checked index beside it.

`NAME.arrows` is an Arrow IPC stream: the schema message, then one record batch message a block.
`NAME.index` holds one entry a block, 32 bytes, little endian:

    u64 offset, u32 length, u32 crc of the block, u32 rows, u16 version, u16 kind, u32 0, u32 crc of the entry

The block is written first and its entry second, so a reader that follows the index never sees half a
block. Nothing is handed to pyarrow before its CRC has been checked: pyarrow may crash on damaged bytes.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from dtscope_jupyter import schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENTRY = struct.Struct("<QIIIHHI")
ENTRY_BYTES = _ENTRY.size + 4
_SCHEMA, _BATCH = 0, 1
MAX_BLOCK_BYTES = 256 * 2**20
_LEAST_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Block:
    """One checked message of a table: `data` is the schema (rows == 0) or a record batch."""

    table: str
    data: bytes
    rows: int
    offset: int
    is_schema: bool

    def batch(self, written: pa.Schema | None = None) -> pa.RecordBatch:
        """The rows, by the schema that their file begins with; ValueError (pa.ArrowInvalid) where they don't fit it."""
        arrow = schema.TABLES[self.table].arrow if written is None else written
        batch = pa.ipc.read_record_batch(pa.py_buffer(self.data), arrow)
        batch.validate(full=True)
        if batch.num_rows != self.rows:
            message = f"{batch.num_rows} rows where the index says {self.rows}"
            raise pa.ArrowInvalid(message)
        return batch


class BlockWriter:
    """Appends the blocks of one table; the only writer of its two files (0600)."""

    def __init__(self, folder: Path, table: str) -> None:
        """`folder` exists; files of an earlier writer there are an error of ours."""
        self.table = table
        self.bytes_written = 0
        self._arrow = schema.TABLES[table].arrow
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._data = os.open(folder / f"{table}.arrows", flags, 0o600)
        try:
            self._index = os.open(folder / f"{table}.index", flags, 0o600)
        except OSError:
            os.close(self._data)
            raise
        self._size = 0
        try:
            self._put(self._arrow.serialize(), 0, _SCHEMA)
        except OSError:
            self.close()
            raise

    def append(self, batch: pa.RecordBatch) -> int:
        """Writes one block and returns its bytes; OSError where the disk is full, with nothing left half written."""
        assert batch.schema.equals(self._arrow), f"{self.table}: columns differ from schema.py"
        return self._put(batch.serialize(), batch.num_rows, _BATCH)

    def close(self) -> None:
        """Closes both files."""
        os.close(self._data)
        os.close(self._index)

    def _put(self, block: pa.Buffer, rows: int, kind: int) -> int:
        head = _ENTRY.pack(self._size, len(block), zlib.crc32(block), rows, schema.VERSION, kind, 0)
        entry = head + zlib.crc32(head).to_bytes(4, "little")
        _write_whole(self._data, memoryview(block), self._size)
        try:
            _write_whole(self._index, memoryview(entry), os.fstat(self._index).st_size)
        except OSError:
            os.ftruncate(self._data, self._size)
            raise
        self._size += len(block)
        self.bytes_written += len(block) + len(entry)
        return len(block)


def _write_whole(descriptor: int, data: memoryview, before: int) -> None:
    done = 0
    try:
        while done < len(data):
            done += os.write(descriptor, data[done:])
    except OSError:
        os.ftruncate(descriptor, before)
        raise


class BlockReader:
    """Follows one table's files; `poll` returns what is new and whole, damaged blocks are counted."""

    def __init__(self, folder: Path, table: str) -> None:
        """The files need not exist yet."""
        self.table = table
        self.newer = 0
        self._damaged = 0
        self._waiting = 0
        self._data_path = folder / f"{table}.arrows"
        self._index_path = folder / f"{table}.index"
        self._position = 0
        self._end = 0
        self._written = schema.TABLES[table].arrow

    @property
    def damaged(self) -> int:
        """Blocks that can't be read, those among them whose bytes are missing at the end (until they come)."""
        return self._damaged + self._waiting

    def poll(self, limit: int = 64 * 2**20) -> list[Block]:
        """The blocks since the last call, up to about `limit` bytes; [] where there is nothing new.

        Raises:
            OSError: The files are there but can't be read, or are no regular files.
        """
        return self._take(self._entries(), limit)

    def begin_late(self, limit: int) -> list[Block]:
        """In place of the first `poll`: the schema alone, and `poll` goes on with the last blocks, of about `limit` bytes.

        What it costs does not grow with the file. [] where there is nothing yet; then it may be called again.
        """
        schema_block = self._take(self._entries(1), 1)
        if schema_block:
            first = self._position
            most = limit // _LEAST_BLOCK_BYTES + 1
            self._position = max(first, self._index_path.stat().st_size // ENTRY_BYTES * ENTRY_BYTES - most * ENTRY_BYTES)
            lengths = [_ENTRY.unpack(entry[: _ENTRY.size])[1] for entry in self._entries()]
            sums = accumulate(reversed(lengths))
            kept = max(1, sum(size <= limit for size in sums))
            self._position += max(0, len(lengths) - kept) * ENTRY_BYTES
        return schema_block

    def _take(self, entries: list[bytes], limit: int) -> list[Block]:
        self._waiting = 0
        if not entries:
            return []
        try:
            descriptor = _open_regular(self._data_path)
        except FileNotFoundError:
            self._waiting = len(entries)
            return []
        try:
            return self._blocks(descriptor, entries, limit)
        finally:
            os.close(descriptor)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decoded rows of the new blocks, columns as in schema.py; a block that pyarrow refuses counts as damaged."""
        while blocks := self.poll():
            for block in blocks:
                try:
                    if block.is_schema:
                        self._written = pa.ipc.read_schema(pa.py_buffer(block.data))
                    else:
                        yield conformed(block.batch(self._written), block.table)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError, OSError):
                    self._damaged += 1

    def _entries(self, most: int | None = None) -> list[bytes]:
        try:
            descriptor = _open_regular(self._index_path)
        except FileNotFoundError:
            return []
        with os.fdopen(descriptor, "rb") as index:
            index.seek(self._position)
            raw = index.read(-1 if most is None else most * ENTRY_BYTES)
        whole = len(raw) // ENTRY_BYTES
        return [raw[i * ENTRY_BYTES : (i + 1) * ENTRY_BYTES] for i in range(whole)]

    def _blocks(self, descriptor: int, entries: list[bytes], limit: int) -> list[Block]:
        blocks: list[Block] = []
        taken, size = 0, os.fstat(descriptor).st_size
        for place, entry in enumerate(entries):
            if taken >= limit:
                break
            head = self._head(entry)
            if head is not None and head[0] + head[1] > size:
                self._waiting = len(entries) - place
                break
            self._position += ENTRY_BYTES
            block = self._block(descriptor, head) if head else None
            if block is not None:
                blocks.append(block)
                taken += len(block.data)
        return blocks

    def _head(self, entry: bytes) -> tuple[int, int, int, int, int] | None:
        """Offset, length, CRC, rows and kind of a sound entry of our version; others are counted."""
        head, check = entry[: _ENTRY.size], entry[_ENTRY.size :]
        offset, length, crc, rows, version, kind, _ = _ENTRY.unpack(head)
        if zlib.crc32(head).to_bytes(4, "little") != check:
            self._damaged += 1
        elif version > schema.VERSION:
            self.newer += 1
        elif offset < self._end or length > MAX_BLOCK_BYTES or kind not in (_SCHEMA, _BATCH):
            self._damaged += 1
        else:
            return offset, length, crc, rows, kind
        return None

    def _block(self, descriptor: int, head: tuple[int, int, int, int, int]) -> Block | None:
        offset, length, crc, rows, kind = head
        data = os.pread(descriptor, length, offset)
        if len(data) != length or zlib.crc32(data) != crc:
            self._damaged += 1
            return None
        self._end = offset + length
        return Block(self.table, data, rows, offset, kind == _SCHEMA)


def conformed(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """The batch with the columns of schema.py: what an older release did not write is null, what a newer one adds is left out.

    Raises:
        pa.ArrowInvalid: A column is of another type, or a required one is missing.
    """
    arrow = schema.TABLES[table].arrow
    if batch.schema.equals(arrow):
        return batch
    columns = [batch.column(f.name) if f.name in batch.schema.names else pa.nulls(len(batch), f.type) for f in arrow]
    for field, column in zip(arrow, columns, strict=True):
        if column.type != field.type or (not field.nullable and column.null_count):
            message = f"{table}.{field.name}: {column.type} where {field.type} belongs"
            raise pa.ArrowInvalid(message)
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _open_regular(path: Path) -> int:
    """Opens a file for reading, never a pipe that would block nor what a link points to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor
