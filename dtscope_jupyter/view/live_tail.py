# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a run directory for a view: the blocks of every table as they are, and the ends of the ranks' logs.

The files are the queue: who is slow reads later, and what is too much for one message is left out from the
oldest on and counted. No row is decoded here.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.store import BlockReader
from dtscope_jupyter.view.live_pack import Message, own_number, own_schemas

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.store import Block

MEBIBYTE = 2**20
_LOG_BYTES = 64 * 1024
_SHARES = {"steps": 0.4, "collectives": 0.2, "gradients": 0.12, "spans": 0.12, "host": 0.05, "parameters": 0.05}
_REST = 0.02
"""Share of a message's bytes that a table may fill, and what tables before it leave."""


@dataclass
class Delta:
    """What is new: blocks of each table by the number of their schema, texts of logs by rank."""

    blocks: dict[tuple[str, int], list[Block]] = field(default_factory=dict)
    schemas: dict[int, bytes] = field(default_factory=dict)
    log: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.blocks or self.log)

    def fill(self, message: Message) -> None:
        """Puts everything into a message."""
        for number, data in self.schemas.items():
            message.add_schema(number, data)
        for (table, number), blocks in self.blocks.items():
            message.add(table, number, [block.data for block in blocks])
        if self.log:
            message.header["log"] = [{"rank": rank, "text": text} for rank, text in self.log.items()]


class RunTail:
    """Follows all ranks of one attempt, also those that come later."""

    def __init__(self, path: Path, newest: int | None = None) -> None:
        """`path` holds the rank folders; nothing is read yet. `newest` bytes of each table are enough for the first `poll`, if given."""
        self._begin = newest
        self._attempt = rundir.Attempt(path, 0)
        self._readers: dict[tuple[int, str], _Table] = {}
        self._logs: dict[int, _Log] = {}
        self._schemas = {data: number for number, data in enumerate(own_schemas())}
        self.ranks: list[int] = []
        self.skipped = 0
        """Rows that a message had no room for."""

    @property
    def damaged(self) -> int:
        """Blocks that were damaged or of a newer version."""
        return sum(table.reader.damaged + table.reader.newer for table in self._readers.values())

    def look(self) -> list[int]:
        """Looks for rank folders, and returns the ranks."""
        self.ranks = self._attempt.ranks()
        return self.ranks

    def poll(self, limit: int) -> Delta:
        """What is new since the last call, about `limit` bytes of it at most, the newest."""
        delta = Delta()
        left = 0
        for table in sorted(schema.TABLES, key=lambda name: -_SHARES.get(name, _REST)):
            left += int(limit * _SHARES.get(table, _REST))
            left = max(0, left - self._poll_table(table, left, delta))
        for rank in self.ranks:
            log = self._logs.setdefault(rank, _Log(self._attempt.rank_path(rank) / "log.txt"))
            if text := log.read():
                delta.log[rank] = text
        self._begin = None
        return delta

    def _poll_table(self, table: str, limit: int, delta: Delta) -> int:
        """Puts in what is new of a table, and returns its bytes."""
        fresh: list[tuple[int, Block]] = []
        for rank in self.ranks:
            key = (rank, table)
            if key not in self._readers:
                self._readers[key] = _Table(self._attempt.rank_path(rank), table, self._begin and self._begin // len(self.ranks))
            for block in self._readers[key].poll():
                if block.is_schema:
                    self._readers[key].schema = self._number(block, delta)
                else:
                    fresh.append((self._readers[key].schema, block))
        kept = self._newest(fresh, limit)
        for number, block in kept:
            delta.blocks.setdefault((table, number), []).append(block)
        return sum(len(block.data) for _, block in kept)

    def _newest(self, fresh: list[tuple[int, Block]], limit: int) -> list[tuple[int, Block]]:
        """Without the oldest blocks of each rank where all would be too much; a block's offset tells its age."""
        size = sum(len(block.data) for _, block in fresh)
        if size <= limit:
            return fresh
        keep = set[int]()
        for place in sorted(range(len(fresh)), key=lambda i: -fresh[i][1].offset):
            limit -= len(fresh[place][1].data)
            if limit < 0 and keep:
                break
            keep.add(place)
        self.skipped += sum(block.rows for place, (_, block) in enumerate(fresh) if place not in keep)
        return [item for place, item in enumerate(fresh) if place in keep]

    def _number(self, block: Block, delta: Delta) -> int:
        if block.data not in self._schemas:
            self._schemas[block.data] = len(self._schemas)
            delta.schemas[self._schemas[block.data]] = block.data
        return self._schemas[block.data]


class _Table:
    """A table of a rank, opened only when its index has grown."""

    def __init__(self, folder: Path, table: str, newest: int | None) -> None:
        self.reader = BlockReader(folder, table)
        self._newest = newest
        self.schema = own_number(table)
        self._index = os.fspath(folder / f"{table}.index")
        self._size = 0

    def poll(self) -> list[Block]:
        try:
            size = os.stat(self._index).st_size  # noqa: PTH116 - ten times a second for every table of every rank
        except OSError:
            return []
        if size == self._size:
            return []
        self._size = size
        blocks: list[Block] = []
        if self._newest is not None:
            blocks, self._newest = self.reader.begin_late(self._newest), None
        while more := self.reader.poll():
            blocks += more
        return blocks


class _Log:
    """The end of a rank's log, in whole characters."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> str:
        try:
            size = self._path.stat().st_size
            if size <= self._position:
                return ""
            with rundir.open_regular(self._path) as file:
                file.seek(max(self._position, size - _LOG_BYTES))
                data = file.read(_LOG_BYTES)
                self._position = file.tell()
        except OSError:
            return ""
        return self._decoder.decode(data)
