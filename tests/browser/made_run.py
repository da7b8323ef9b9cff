# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Run directories too long for a page, written with the agents' own writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.store import BlockWriter

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = 1_764_000_000_000_000_000
STEP_NS = 50_000_000
BUCKETS = 3
LATE = 1
"""The rank that begins each collective last, by 4 ms."""
_BLOCK = 100


def long_run(path: Path, ranks: int, steps: int, sampled: int = 1) -> Path:
    """Steps of 50 ms with three buckets each, recorded in one of `sampled`, by rank 0 twice as often; all ranks have ended."""
    attempt = rundir.create_attempt(path, {"name": "long", "world_size": ranks, "backend": "gloo"})
    for rank in range(ranks):
        folder = attempt.rank_path(rank)
        folder.mkdir(mode=0o700)
        rundir.write_json(folder / "rank.json", {"rank": rank, "world_size": ranks})
        writers = {name: BlockWriter(folder, name) for name in ("steps", "collectives")}
        for first in range(0, steps, _BLOCK):
            step = np.arange(first, min(first + _BLOCK, steps))
            seen = step % max(1, sampled // 2 if rank == 0 else sampled) == 0
            writers["steps"].append(_batch("steps", _steps(rank, step, seen)))
            writers["collectives"].append(_batch("collectives", _collectives(rank, ranks, step[seen])))
        for writer in writers.values():
            writer.close()
    return path


def _steps(rank: int, step: Any, seen: Any) -> dict[str, Any]:
    start = ORIGIN + step * STEP_NS
    known = {
        name: [value if each else None for each in seen] for name, value in (("comm_ms", 18.0), ("compute_ms", 40.0), ("overlap_ms", 14.0))
    }
    same = {name: [value] * len(step) for name, value in (("rank", rank), ("exposed_ms", 2.0 if rank == LATE else 6.0), ("source", "host"))}
    return known | same | {"step": step, "start_ns": start, "end_ns": start + STEP_NS}


def _collectives(rank: int, ranks: int, steps: Any) -> dict[str, Any]:
    step, bucket = np.repeat(steps, BUCKETS), np.tile(np.arange(BUCKETS), len(steps))
    begun = ORIGIN + step * STEP_NS + 20_000_000 + bucket * 9_000_000
    start = begun + (4_000_000 if rank == LATE else 0)
    same: dict[str, Any] = {"rank": rank, "process_group": "0", "group_size": ranks, "operation": "all_reduce", "bytes": 2**20}
    same |= {"state": "completed", "source": "host", "dtype": "float32"}
    times = {"enqueue_ns": start, "start_ns": start, "end_ns": begun + 6_000_000}
    places = {"step": step, "seq": step * BUCKETS + bucket, "bucket": bucket}
    return {name: [value] * len(step) for name, value in same.items()} | times | places


def _batch(table: str, columns: dict[str, Any]) -> pa.RecordBatch:
    arrow = schema.TABLES[table].arrow
    length = len(columns["step"])
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(length, f.type) for f in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
