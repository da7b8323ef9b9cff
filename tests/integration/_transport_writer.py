# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Writes numbered rows into a rank folder until a file appears: FOLDER RANK STOP."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

from dtscope_jupyter import schema, store


def _batch(table: str, rank: int, first: int, rows: int) -> pa.RecordBatch:
    arrow = schema.TABLES[table].arrow
    given = {"rank": [rank] * rows, "seq": list(range(first, first + rows)), "process_group": ["pg"] * rows, "operation": ["x"] * rows}
    given["kind"] = ["scalar"] * rows
    return pa.record_batch({name: given.get(name, [None] * rows) for name in arrow.names}, schema=arrow)


def main() -> None:
    folder, rank, stop = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    writers = {table: store.BlockWriter(folder, table) for table in ("collectives", "notes")}
    first = 0
    while not stop.exists():
        for table, writer in writers.items():
            writer.append(_batch(table, rank, first, 3))
        first += 3
        time.sleep(0.01)


main()
