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
    """Keeps the newest blocks of each table, and diagnoses them on a thread of its own."""

    def __init__(self) -> None:
        self.findings: list[dict[str, Any]] | None = None
        """As Finding.to_dict gives them; None before the first diagnosis."""
        self._blocks: dict[str, deque[Block]] = {name: deque() for name in schema.TABLES}
        self._rows = dict.fromkeys(schema.TABLES, 0)
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
        if self._new and self._thread is None and not self._ending.is_set():
            self._thread = threading.Thread(target=self._work, name="dtscope-analysis", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the diagnosis under way."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def run_now(self) -> None:
        """Diagnoses what is here, if there is something new."""
        with self._lock:
            if not self._new:
                return
            self._new = False
            blocks = {name: list(found) for name, found in self._blocks.items()}
        try:
            self.findings = _diagnosed(blocks)
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A diagnosis that fails on half a run must not end the view; the full one at the end says so itself.
            _LOG.exception("dtscope: the live diagnosis failed")

    def _forget(self, table: str) -> None:
        if table in _KEPT:
            return
        while self._rows[table] > _ROWS.get(table, _REST) and len(self._blocks[table]) > 1:
            self._rows[table] -= self._blocks[table].popleft().rows

    def _work(self) -> None:
        pause = _PERIOD_S
        while not self._ending.wait(pause):
            began = time.thread_time()
            self.run_now()
            pause = max(_PERIOD_S, (time.thread_time() - began) / _SHARE)


def _diagnosed(blocks: dict[str, list[Block]]) -> list[dict[str, Any]]:
    from dtscope_jupyter.diagnosis import diagnose
    from dtscope_jupyter.reading import encoded, latest_rows

    tables = {name: _table(name, found) for name, found in blocks.items()}
    tables["collectives"] = latest_rows(tables["collectives"])
    diagnosis = diagnose({name: encoded(table) for name, table in tables.items()}, live=True)
    return [finding.to_dict() for finding in diagnosis.findings]


def _table(name: str, blocks: list[Block]) -> pa.Table:
    arrow = schema.TABLES[name].arrow
    rows = []
    for block in blocks:
        try:
            rows.append(block.batch())
        except UNREADABLE:
            _LOG.warning("dtscope: a block of %s does not fit its schema", name)
    return pa.Table.from_batches(rows, arrow)
