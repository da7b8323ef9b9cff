# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rows to disk: bounded memory, one daemon thread a rank, a block a table each 100 ms; 180 where that takes long, 380 beside a device.

Collectors keep raw events of their own; the thread asks them (`add_source`) to turn these into rows, so
that hooks do no more than append. A full buffer drops its oldest rows, and `notes` counts them.

All ranks write at the same moments of the clock: a rank that is held up holds up those that wait for it, so that what comes at
different times on each of them is lost as many times as there are ranks (Petrini, Kerbyson, Pakin, "The case of the missing
supercomputer performance", SC 2003).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import schema
from dtscope_jupyter.agent import capture, clock, switching
from dtscope_jupyter.agent.blocks import Blocks
from dtscope_jupyter.agent.thinning import Thinning
from dtscope_jupyter.store import BlockWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_log = logging.getLogger(__name__)
PERIOD_S = 0.1
_LONGEST_S = 0.18
"""A rank that is killed loses its last 200 ms at most."""
PATIENT_S = 0.38
_PERIODS = (PERIOD_S, _LONGEST_S)
_SHARE = 0.003
CAPACITY = 65_536
Row = tuple[Any, ...]


class Recorder:
    """Takes rows (without the rank, in the order of schema.py) and writes them; every method may be called from any thread."""

    def __init__(self, folder: Path, rank: int, disk: int) -> None:
        """`folder` exists and holds no tables yet."""
        self._folder = folder
        self._heart = str(folder / "rank.json")
        self._rank = rank
        self._rows: dict[str, deque[Row]] = {name: deque() for name in schema.TABLES}
        self._blocks = {name: Blocks(name) for name in schema.TABLES}
        self._writers: dict[str, BlockWriter] = {}
        self._sources: list[Callable[[bool], None]] = []
        self._thinning = Thinning(disk)
        self._dropped: Counter[str] = Counter()
        self._flushing = threading.Lock()
        self._between = capture.Between()
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._full: set[str] = set()
        self.thread_s = 0.0
        self.longest_s = _LONGEST_S
        self.on_failure: Callable[[Callable[[bool], None], Exception], None] = self._note_failure

    def start(self) -> None:
        """Starts the writing thread, once."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._work, name="dtscope-writer", daemon=True)
        self._thread.start()

    def add_source(self, drain: Callable[[bool], None]) -> None:
        """`drain(final)` is called before each write, on the writing thread."""
        self._sources.append(drain)

    def remove_source(self, drain: Callable[[bool], None]) -> None:
        """The inverse of `add_source`; unknown ones are ignored."""
        if drain in self._sources:
            self._sources.remove(drain)

    @property
    def bytes_written(self) -> int:
        """Bytes on disk so far."""
        return self._thinning.used

    def add(self, table: str, row: Row, rank: int | None = None) -> None:
        """One row, of this rank unless said; over the capacity the oldest goes and is counted."""
        rows = self._rows[table]
        row = (*row, self._rank if rank is None else rank)
        rows.append(row)
        if len(rows) > CAPACITY:
            rows.popleft()
            self._dropped[table] += 1

    def extend(self, table: str, rows: Iterable[Row]) -> None:
        """Several rows."""
        for row in rows:
            self.add(table, row)

    def drop(self, table: str, count: int) -> None:
        """Counts rows that a collector had to drop itself."""
        self._dropped[table] += count

    def note(self, kind: str, name: str, value: float | None = None, text: str | None = None, step: int | None = None) -> None:
        """A row of `notes`, now."""
        self.add("notes", (step, clock.now() + clock.OFFSET_NS, kind, name, value, text))

    def flush(self, *, final: bool = False) -> None:
        """Writes what there is."""
        with self._flushing:
            if self._closed:
                return
            with self._between as free:
                for drain in tuple(self._sources) if free or final else ():
                    self._ask(drain, final=final)
            self._count_losses()
            for table, rows in self._rows.items():
                if rows:
                    self._write(table, [rows.popleft() for _ in range(len(rows))])

    def _ask(self, drain: Callable[[bool], None], *, final: bool) -> None:
        """One that fails is asked no more, and keeps nobody else's rows back."""
        try:
            drain(final)
        except Exception as error:  # noqa: BLE001 # the others go on, and so does training
            self.remove_source(drain)
            self.on_failure(drain, error)

    def _note_failure(self, drain: Callable[[bool], None], error: Exception) -> None:
        _log.error("dtscope: %s failed and is asked no more", drain, exc_info=error)
        self.note("warning", "recorder", text=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Writes the rest and closes the files; idempotent."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._asleep.release()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        self.flush(final=True)
        with self._flushing:
            self._closed = True
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    def _work(self) -> None:
        period = PERIOD_S
        while not self._asleep.acquire(timeout=period - time.time() % period):  # an Event takes forty lines of Python, cold each time
            before = self.thread_s
            try:
                with switching.short:
                    self.flush()
                os.utime(self._heart)
            except FileNotFoundError:
                pass
            except Exception as error:  # noqa: BLE001 # it is logged, and training goes on
                _log.exception("dtscope: can't write to %s", self._folder)
                self.note("warning", "recorder", text=f"{type(error).__name__}: {error}")
            self.thread_s = time.thread_time()
            wanted = (self.thread_s - before) / _SHARE
            period = next((one for one in _PERIODS if wanted <= one < self.longest_s), self.longest_s)

    def _count_losses(self) -> None:
        for kind, counter in (("dropped", self._dropped), ("thinned", self._thinning.counts)):
            while counter:
                table, count = counter.popitem()
                self.note(kind, table, count, f"{count} rows of {table} {kind}")

    def _write(self, table: str, rows: list[Row]) -> None:
        rows = self._thinning.keep(table, rows)
        if not rows:
            return
        block = self._blocks[table].block(rows)
        if not self._thinning.fits(table, len(rows), len(block)):
            return
        try:
            if table not in self._writers:
                self._writers[table] = BlockWriter(self._folder, table)
            self._thinning.used += self._writers[table].append_block(block, len(rows))
            self._full.discard(table)
        except OSError as error:
            self._dropped[table] += len(rows)
            if not self._full:
                _log.warning("dtscope: can't write to %s: %s; rows are lost and counted until there is space", self._folder, error.strerror)
            self._full.add(table)
