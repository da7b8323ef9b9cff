# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""All rows of one step, for a page that no longer holds them: found in a run directory by halving, or taken from tables."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.segments import ENTRY_BYTES
from dtscope_jupyter.store import UNREADABLE, BlockReader, conformed
from dtscope_jupyter.view.live_pack import Message, batches, own_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dtscope_jupyter.store import Block
    from dtscope_jupyter.view.widget import Panels

_LOG = logging.getLogger(__name__)
TABLES = ("steps", "collectives", "host", "gradients", "spans")
_SLACK = 2
"""Steps by which a row may come later than its place: collectives are written when they are done."""
_SAMPLES = 32
"""Gradients are sampled at least so often: the last sample before the step is asked for as well."""
_LIMIT_S = 5.0
_MOST_BYTES = 24 * 2**20
_WAITING = 8


class Answers:
    """Answers pages that ask for a step, on a thread of its own that ends when nothing is asked."""

    def __init__(self, widget: Panels, rows: Callable[[int], Mapping[str, pa.Table]]) -> None:
        """`rows` gives the tables of a step."""
        self._widget = widget
        self._rows = rows
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._working = False
        widget.on_msg(self._hear)

    def _hear(self, _: Any, content: dict[str, Any], __: list[Any]) -> None:
        step = content.get("step")
        if content.get("kind") != "step" or not isinstance(step, int) or self._asked.qsize() >= _WAITING:
            return
        self._asked.put(step)
        with self._lock:
            if not self._working:
                self._working = True
                threading.Thread(target=self._work, name="dtscope-step", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._asked.empty():
                    self._working = False
                    return
            self._answer(self._asked.get())

    def _answer(self, step: int) -> None:
        try:
            message = of_step(step, self._rows(step))
        except (DtscopeError, *UNREADABLE):
            _LOG.exception("dtscope: step %d could not be read for a page", step)
            message = of_step(step, {})
        self._widget.send(message.signed(), message.buffers)


def of_step(step: int, tables: Mapping[str, pa.Table]) -> Message:
    """The answer: rows of a step, the most telling tables first where all would be too much."""
    message = Message({"kind": "step", "step": step})
    left = _MOST_BYTES
    for number, (name, data) in enumerate(zip(schema.TABLES, own_schemas(), strict=True)):
        table = tables.get(name)
        if table is None or not len(table) or table.nbytes > left:
            continue
        left -= table.nbytes
        message.add_schema(number, data)
        message.add(name, number, batches(table, name))
    return message


def of_tables(tables: Mapping[str, pa.Table], step: int) -> dict[str, pa.Table]:
    """The step's rows of a run that is in memory."""
    return {name: tables[name].filter(_wanted(tables[name]["step"], name, step)) for name in TABLES}


def of_directory(path: Path, step: int) -> dict[str, pa.Table]:
    """The step's rows of all ranks, read from the files; of ranks that there is no time for nothing."""
    attempt = rundir.Attempt(path, 0)
    until = time.monotonic() + _LIMIT_S
    found: dict[str, list[pa.RecordBatch]] = {name: [] for name in TABLES}
    for rank in attempt.ranks():
        for name in TABLES:
            if time.monotonic() < until:
                found[name] += _Table(_Places(attempt.rank_path(rank), name), step).rows()
    return {name: pa.Table.from_batches(rows, schema.TABLES[name].arrow) for name, rows in found.items()}


def _wanted(steps: pa.ChunkedArray | pa.Array, table: str, step: int) -> Any:
    if table != "gradients":
        return pc.equal(steps, step)
    return pc.and_(pc.less_equal(steps, step), pc.greater(steps, step - _SAMPLES))


class _Places(BlockReader):
    """The blocks of a table by their place in its index."""

    def count(self) -> int:
        try:
            return self._index_path.stat().st_size // ENTRY_BYTES
        except OSError:
            return 0

    def block(self, place: int) -> Block | None:
        """None where it is damaged."""
        self._position, self.end = place * ENTRY_BYTES, 0
        blocks = self._take(self._read_index(ENTRY_BYTES), 1)
        return blocks[0] if blocks else None


class _Table:
    """One table of one rank, whose blocks are in the order of their steps but for a few."""

    def __init__(self, reader: _Places, step: int) -> None:
        self._reader = reader
        self._step = step
        self._written = schema.TABLES[reader.table].arrow
        self._count = reader.count()

    def rows(self) -> list[pa.RecordBatch]:
        first = self._reader.block(0)
        if first is not None and first.is_schema:
            self._written = pa.ipc.read_schema(pa.py_buffer(first.data))
        name = self._reader.table
        begin = self._step - (_SAMPLES if name == "gradients" else 0)
        kept = []
        for place in range(self._first(begin - _SLACK), self._count):
            batch = self._batch(place)
            if batch is None:
                continue
            steps = batch.column("step")
            least = pc.min(steps).as_py()
            if least is not None and least > self._step + _SLACK:
                break
            part = batch.filter(_wanted(steps, name, self._step))
            if len(part):
                kept.append(conformed(part, name))
        return kept

    def _first(self, step: int) -> int:
        """Place of the first block that may hold a row of that step or a later one."""
        low, high = 1, self._count
        while low < high:
            middle = (low + high) // 2
            newest, place = None, middle
            while newest is None and place < high:
                batch = self._batch(place)
                newest = pc.max(batch.column("step")).as_py() if batch is not None else None
                place += 1
            if newest is None or newest >= step:
                high = middle
            else:
                low = place
        return low

    def _batch(self, place: int) -> pa.RecordBatch | None:
        block = self._reader.block(place)
        try:
            return block.batch(self._written) if block is not None and not block.is_schema else None
        except UNREADABLE:
            return None
