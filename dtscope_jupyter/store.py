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

import os
import struct
import zlib
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Block:
    """One checked message of a table: `data` is the schema (rows == 0) or a record batch."""

    table: str
    data: bytes
    rows: int
    offset: int
    is_schema: bool

    def batch(self) -> pa.RecordBatch:
        """The rows; ValueError (pa.ArrowInvalid) where they don't fit the schema."""
        arrow = schema.TABLES[self.table].arrow
        batch = pa.ipc.read_record_batch(pa.py_buffer(self.data), arrow)
        batch.validate(full=True)
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
        self._put(self._arrow.serialize(), 0, _SCHEMA)

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
        self.damaged = 0
        self.newer = 0
        self._data_path = folder / f"{table}.arrows"
        self._index_path = folder / f"{table}.index"
        self._position = 0
        self._end = 0

    def poll(self, limit: int = 64 * 2**20) -> list[Block]:
        """The blocks since the last call, up to about `limit` bytes; [] where there is nothing new."""
        entries = self._entries()
        if not entries:
            return []
        blocks: list[Block] = []
        size = 0
        with self._data_path.open("rb") as data:
            for entry in entries:
                if size >= limit:
                    break
                self._position += ENTRY_BYTES
                block = self._block(data.fileno(), entry)
                if block is not None:
                    blocks.append(block)
                    size += len(block.data)
        return blocks

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decoded rows of the new blocks; one that pyarrow refuses counts as damaged."""
        while blocks := self.poll():
            for block in blocks:
                if block.is_schema:
                    continue
                try:
                    yield block.batch()
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError):
                    self.damaged += 1

    def _entries(self) -> list[bytes]:
        try:
            with self._index_path.open("rb") as index:
                index.seek(self._position)
                raw = index.read()
        except FileNotFoundError:
            return []
        if raw and not self._data_path.exists():
            return []
        whole = len(raw) // ENTRY_BYTES
        return [raw[i * ENTRY_BYTES : (i + 1) * ENTRY_BYTES] for i in range(whole)]

    def _block(self, descriptor: int, entry: bytes) -> Block | None:
        head, check = entry[: _ENTRY.size], entry[_ENTRY.size :]
        if zlib.crc32(head).to_bytes(4, "little") != check:
            self.damaged += 1
            return None
        offset, length, crc, rows, version, kind, _ = _ENTRY.unpack(head)
        if version > schema.VERSION:
            self.newer += 1
            return None
        if offset < self._end or length > MAX_BLOCK_BYTES or kind not in (_SCHEMA, _BATCH):
            self.damaged += 1
            return None
        data = os.pread(descriptor, length, offset)
        if len(data) != length or zlib.crc32(data) != crc:
            self.damaged += 1
            return None
        self._end = offset + length
        return Block(self.table, data, rows, offset, kind == _SCHEMA)
