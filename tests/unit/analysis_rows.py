# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Small tables and run directories for tests: rows as dicts, times in ms after a fixed moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dtscope_jupyter import rundir, schema, store

if TYPE_CHECKING:
    from pathlib import Path

BASE = 1_790_000_000_000_000_000


def at(ms: float) -> int:
    """A moment, ns."""
    return BASE + round(ms * 1e6)


def tables(**rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Every table, with these rows."""
    found = schema.empty_tables()
    for name, given in rows.items():
        found[name] = pa.Table.from_pylist(given, schema.TABLES[name].arrow)
    return found


def kernel(rank: int, kind: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """A row of `spans` on a device."""
    return {"rank": rank, "kind": kind, "name": kind, "start_ns": at(start), "end_ns": at(end), "stream": 7, **more}


def collective(rank: int, seq: int | None, start: float | None, end: float | None, **more: Any) -> dict[str, Any]:
    """A row of `collectives`."""
    row = {"rank": rank, "seq": seq, "process_group": "0", "operation": "all_reduce", "source": "event", **more}
    row |= {"start_ns": None if start is None else at(start), "end_ns": None if end is None else at(end)}
    return row


def step(rank: int, number: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    """A row of `steps`."""
    return {"rank": rank, "step": number, "start_ns": at(start), "end_ns": at(end), "source": "event", **more}


def wait(rank: int, number: int, start: float, end: float) -> dict[str, Any]:
    """A row of `host`: blocked in a collective."""
    return {"rank": rank, "step": number, "kind": "collective_wait", "start_ns": at(start), "end_ns": at(end)}


def two_ranks(steps: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Two CPU ranks of a step each 100 ms: two all-reduces a step, rank 1 late by 5 ms; 8 ms blocked at the end.

    Per step: rank 0 communicates 40 to 58 and 60 to 78, rank 1 45 to 58 and 65 to 78; both are blocked 70 to 78 and end at 90.
    """
    found: dict[str, list[dict[str, Any]]] = {"steps": [], "collectives": [], "host": []}
    for rank in range(2):
        for n in range(steps):
            begin = 100 * n
            found["steps"].append(step(rank, n, begin, begin + 90))
            found["host"].append(wait(rank, n, begin + 70, begin + 78))
            for bucket in range(2):
                start, end = begin + 40 + 20 * bucket + 5 * rank, begin + 58 + 20 * bucket
                more = {"step": n, "bucket": bucket, "group_size": 2, "bytes": 4_000_000, "phase": "backward", "state": "completed"}
                found["collectives"].append(collective(rank, 2 * n + bucket, start, end, **more))
    return found


def write_run(path: Path, rows: dict[str, list[dict[str, Any]]], **meta: Any) -> rundir.Attempt:
    """A run directory, or a further attempt in it, with these rows; each rank's go to its own folder."""
    attempt = rundir.create_attempt(path, {"name": path.name, **meta})
    for rank in sorted({row["rank"] for given in rows.values() for row in given}):
        folder = attempt.rank_path(rank)
        folder.mkdir(mode=0o700)
        for name, given in rows.items():
            append(folder, name, [row for row in given if row["rank"] == rank])
    return attempt


def append(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Writes one table's rows as one block."""
    writer = store.BlockWriter(folder, name)
    writer.append(pa.RecordBatch.from_pylist(rows, schema.TABLES[name].arrow))
    writer.close()


def counted(steps: int = 4, every: int = 4) -> dict[str, list[dict[str, Any]]]:
    """As `two_ranks` on devices: one step in `every` is timed, of the others only the exposed time is known, 1 ms more each step."""
    found = two_ranks(steps)
    timed = [step for step in range(steps) if not (step + 1) % every]
    found["collectives"] = [row for row in found["collectives"] if row["step"] in timed]
    found["host"] = [row for row in found["host"] if row["step"] in timed]
    figures = {"comm_ms": 36.0, "compute_ms": 82.0, "overlap_ms": 28.0, "exposed_ms": 8.0}
    found["steps"] = [
        row | (figures if row["step"] in timed else {"exposed_ms": 1.0 + row["step"] + 10 * row["rank"]}) for row in found["steps"]
    ]
    return found
