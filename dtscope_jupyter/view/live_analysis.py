# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of a running job: over its last steps, at most once a second and at most a tenth of the time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.store import UNREADABLE

if TYPE_CHECKING:
    from dtscope_jupyter.store import Block
    from dtscope_jupyter.view.live_tail import Delta

_LOG = logging.getLogger(__name__)
_PERIOD_S = 1.0
_SHARE = 0.1
_ROWS = {"steps": 20_000, "collectives": 60_000, "gradients": 40_000, "host": 40_000, "spans": 100_000}
_REST = 20_000
_KEPT = ("parameters", "groups", "clocks")
"""Tables of which nothing is forgotten."""


class LiveAnalysis:
    """Keeps the newest rows of each table, and diagnoses them on a thread of its own.

    A slow run writes a row a block, and a decoded block takes ten times its bytes: each is decoded once, its rows are moved into one piece.
    """

    def __init__(self) -> None:
        self.findings: list[dict[str, Any]] | None = None
        """As Finding.to_dict gives them; None before the first diagnosis."""
        self._blocks: dict[str, deque[Block]] = {name: deque() for name in schema.TABLES}
        self._rows = dict.fromkeys(schema.TABLES, 0)
        self._tables = {name: table.empty() for name, table in schema.TABLES.items()}
        self._lost: list[dict[str, Any]] = []
        self._new = False
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def feed(self, delta: Delta) -> None:
        """Takes blocks in, and lets the oldest go."""
        with self._lock:
            for (table, _), blocks in delta.blocks.items():
                self._blocks[table].extend(blocks)
                self._rows[table] += sum(block.rows for block in blocks)
                self._forget(table)
            self._new |= bool(delta.blocks)
        self._begin()

    def lost(self, notes: list[dict[str, Any]]) -> None:
        """Takes in which ranks are gone without a word: `vanished.notes`, all of them."""
        with self._lock:
            self._new |= notes != self._lost
            self._lost = notes
        self._begin()

    def stop(self) -> None:
        """Ends the thread, after the diagnosis under way."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def run_now(self, *, over: bool = False) -> None:
        """Diagnoses what is here, if there is something new; of a run that is `over` also what came and went, as its report does."""
        with self._lock:
            if not (self._new or over):
                return
            self._new = False
            blocks = {name: list(found) for name, found in self._blocks.items() if found}
            for name in blocks:
                self._blocks[name].clear()
                self._rows[name] = 0
        try:
            for name, found in blocks.items():
                self._tables[name] = _grown(self._tables[name], _decoded(name, found), _most(name))
            self.findings = _diagnosed(self._tables, self._lost, live=not over)
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A diagnosis that fails on half a run must not end the view; the full one at the end says so itself.
            _LOG.exception("dtscope: the live diagnosis failed")

    def _begin(self) -> None:
        if self._new and self._thread is None and not self._ending.is_set():
            self._thread = threading.Thread(target=self._work, name="dtscope-analysis", daemon=True)
            self._thread.start()

    def _forget(self, table: str) -> None:
        most = _most(table)
        while most is not None and self._rows[table] > most and len(self._blocks[table]) > 1:
            self._rows[table] -= self._blocks[table].popleft().rows

    def _work(self) -> None:
        pause = _PERIOD_S
        while not self._ending.wait(pause):
            began = time.thread_time()
            self.run_now()
            pause = max(_PERIOD_S, (time.thread_time() - began) / _SHARE)


def _most(table: str) -> int | None:
    """Rows that are kept of a table; None for all."""
    return None if table in _KEPT else _ROWS.get(table, _REST)


def _diagnosed(found: dict[str, pa.Table], lost: list[dict[str, Any]], *, live: bool) -> list[dict[str, Any]]:
    from dtscope_jupyter.diagnosis import diagnose
    from dtscope_jupyter.reading import encoded, exited, latest_rows

    tables = found | {"collectives": latest_rows(found["collectives"])}
    said = exited(found["notes"])
    gone = pa.Table.from_pylist([row for row in lost if row["rank"] not in said], schema.NOTES.arrow)
    tables["notes"] = pa.concat_tables([found["notes"], gone])
    diagnosis = diagnose({name: encoded(table) for name, table in tables.items()}, live=live)
    return [finding.to_dict() for finding in diagnosis.findings]


def _grown(table: pa.Table, more: pa.Table, most: int | None) -> pa.Table:
    """Both in one piece, without the oldest rows beyond `most`."""
    both = pa.concat_tables([table, more])
    if most is not None and len(both) > most:
        both = both.slice(len(both) - most)
    return both.combine_chunks()


def _decoded(name: str, blocks: list[Block]) -> pa.Table:
    arrow = schema.TABLES[name].arrow
    rows = []
    for block in blocks:
        try:
            rows.append(block.batch())
        except UNREADABLE:
            _LOG.warning("dtscope: a block of %s does not fit its schema", name)
    return pa.Table.from_batches(rows, arrow)
