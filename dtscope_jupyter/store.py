# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables on disk: append-only Arrow IPC with a checked index beside it, as rows; segments.py says what the bytes are.

Nothing is handed to pyarrow before its CRC has been checked: pyarrow may crash on damaged bytes.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.descriptors import AppendFile
from dtscope_jupyter.segments import ENTRY_BYTES, Entry, Follower, open_regular, pack, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCHEMA, _BATCH = 0, 1
_LEAST_BLOCK_BYTES = 512
_DECODED_BYTES = 4 * 2**20
UNREADABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError, OSError)
"""What pyarrow raises of a block that it can't decode."""


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
        self._data = AppendFile(folder / f"{table}.arrows")
        try:
            self._index = AppendFile(folder / f"{table}.index")
        except OSError:
            self._data.close()
            raise
        try:
            self._put(self._arrow.serialize(), 0, _SCHEMA)
        except OSError:
            self.close()
            raise

    def append(self, batch: pa.RecordBatch) -> int:
        """Writes one block and returns its bytes; OSError where the disk is full, with nothing left half written."""
        assert batch.schema.equals(self._arrow), f"{self.table}: columns differ from schema.py"
        return self.append_block(batch.serialize(), batch.num_rows)

    def append_block(self, block: bytes | pa.Buffer, rows: int) -> int:
        """The same of a batch, with this table's columns, that has been serialized."""
        return self._put(block, rows, _BATCH)

    def close(self) -> None:
        """Closes both files."""
        self._data.close()
        self._index.close()

    def _put(self, block: bytes | pa.Buffer, rows: int, kind: int) -> int:
        before = self._data.size
        entry = pack(Entry(before, len(block), zlib.crc32(block), rows, schema.VERSION, kind))
        self._data.append(memoryview(block))
        try:
            self._index.append(memoryview(entry))
        except OSError:
            self._data.cut(before)
            raise
        self.bytes_written += len(block) + len(entry)
        return len(block)


class BlockReader(Follower):
    """Follows one table's files; `poll` returns what is new and whole, damaged blocks are counted."""

    def __init__(self, folder: Path, table: str) -> None:
        """The files need not exist yet."""
        super().__init__(folder, table)
        self.newer = 0
        self._damaged = 0
        self._waiting = 0
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
        return self._take(self._read_index(), limit)

    def begin_late(self, limit: int) -> list[Block]:
        """In place of the first `poll`: the schema alone, and `poll` goes on with the last blocks, of about `limit` bytes.

        What it costs does not grow with the file. [] where there is nothing yet; then it may be called again.
        """
        schema_block = self._take(self._read_index(ENTRY_BYTES), 1)
        if schema_block:
            first = self._position
            most = limit // _LEAST_BLOCK_BYTES + 1
            self._position = max(first, self._index_path.stat().st_size // ENTRY_BYTES * ENTRY_BYTES - most * ENTRY_BYTES)
            raw = self._read_index()
            entries = [parse(raw, place) for place in range(0, len(raw), ENTRY_BYTES)]
            lengths = [entry.length if entry else 0 for entry in entries]
            sums = accumulate(reversed(lengths))
            kept = max(1, sum(size <= limit for size in sums))
            self._position += max(0, len(lengths) - kept) * ENTRY_BYTES
        return schema_block

    def _take(self, raw: bytes, limit: int) -> list[Block]:
        self._waiting = 0
        if not raw:
            return []
        try:
            descriptor = open_regular(self._data_path)
        except FileNotFoundError:
            self._waiting = len(raw) // ENTRY_BYTES
            return []
        try:
            return self._blocks(descriptor, raw, limit)
        finally:
            os.close(descriptor)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decoded rows of the new blocks, columns as in schema.py; a block that pyarrow refuses counts as damaged."""
        while blocks := self.poll(_DECODED_BYTES):
            for block in blocks:
                try:
                    if block.is_schema:
                        self._written = pa.ipc.read_schema(pa.py_buffer(block.data))
                    else:
                        yield conformed(block.batch(self._written), block.table)
                except UNREADABLE:
                    self._damaged += 1

    def _blocks(self, descriptor: int, raw: bytes, limit: int) -> list[Block]:
        blocks: list[Block] = []
        taken, size = 0, os.fstat(descriptor).st_size
        for place in range(0, len(raw), ENTRY_BYTES):
            if taken >= limit:
                break
            entry = self._sound(parse(raw, place))
            if entry is not None and entry.offset + entry.length > size:
                self._waiting = (len(raw) - place) // ENTRY_BYTES
                break
            self._position += ENTRY_BYTES
            data = self._read_block(descriptor, entry) if entry else None
            if entry is None or data is None:
                self._damaged += entry is not None
                continue
            blocks.append(Block(self.table, data, entry.rows, entry.offset, entry.kind == _SCHEMA))
            taken += entry.length
        return blocks

    def _sound(self, entry: Entry | None) -> Entry | None:
        """An entry of our version that goes on where the last one ended; others are counted."""
        if entry is not None and entry.version > schema.VERSION:
            self.newer += 1
        elif entry is None or entry.offset < self.end or entry.kind not in (_SCHEMA, _BATCH):
            self._damaged += 1
        else:
            return entry
        return None


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
