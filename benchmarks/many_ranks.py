# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the folders of many ranks as their agents would, ten times a second, in one process.

Run: python benchmarks/many_ranks.py DIR RANKS SECONDS [STEPS_PER_S]
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.store import BlockWriter

STEPS_PER_S = 20
PERIOD_S = 0.1
BUCKETS = 3


def batch(table: str, columns: dict[str, Any]) -> pa.RecordBatch:
    """The columns as a block; the rest is unknown."""
    arrow = schema.TABLES[table].arrow
    length = len(columns["step"])
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(length, f.type) for f in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


class Rank:
    """One rank's two tables; a step is half compute, then three buckets of which the last is exposed."""

    def __init__(self, run: Path, rank: int, world: int, rate: float = STEPS_PER_S) -> None:
        """Makes its folder; `rate` is in steps a second."""
        self._step_ns = int(1e9 / rate)
        folder = run / f"rank-{rank:04d}"
        folder.mkdir(mode=0o700)
        self._rank, self._world = rank, world
        self._identity = folder / "rank.json"
        rundir.write_json(self._identity, {"rank": rank, "world_size": world, "pid": os.getpid(), "host": socket.gethostname()})
        self._tables = {name: BlockWriter(folder, name) for name in ("steps", "collectives")}
        self._rng = np.random.default_rng(rank)

    def write(self, begin: int, first: int, last: int) -> None:
        """Steps from `first` to before `last` of a run that began at `begin` (ns)."""
        steps = np.arange(first, last)
        start = begin + steps * self._step_ns
        exposed = self._rng.gamma(4, 1, len(steps))
        made = {"rank": [self._rank] * len(steps), "step": steps, "start_ns": start, "end_ns": start + self._step_ns}
        made |= {"comm_ms": exposed + 20, "compute_ms": [30.0] * len(steps), "overlap_ms": [20.0] * len(steps), "exposed_ms": exposed}
        self._tables["steps"].append(batch("steps", made | {"source": ["agent"] * len(steps)}))
        self._tables["collectives"].append(batch("collectives", self._collectives(steps, start)))
        os.utime(self._identity)

    def _collectives(self, steps: np.ndarray, start: np.ndarray) -> dict[str, Any]:
        count = len(steps) * BUCKETS
        bucket = np.tile(np.arange(BUCKETS), len(steps))
        begun = np.repeat(start, BUCKETS) + self._step_ns // 2 + bucket * 6_000_000
        same: dict[str, Any] = {"rank": self._rank, "process_group": "default", "group_size": self._world, "operation": "all_reduce"}
        same |= {"bytes": 25 * 2**20, "dtype": "float32", "state": "completed", "source": "agent"}
        rows = {name: [value] * count for name, value in same.items()}
        arrived = begun + self._rng.integers(0, 1_000_000, count)
        times = {"enqueue_ns": arrived, "start_ns": arrived, "end_ns": begun + 5_000_000}
        return rows | times | {"step": np.repeat(steps, BUCKETS), "seq": np.repeat(steps, BUCKETS) * BUCKETS + bucket, "bucket": bucket}


def main() -> None:
    """Writes until the time is over."""
    run, world, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    rate = float(sys.argv[4]) if len(sys.argv) > 4 else STEPS_PER_S
    rundir.create_attempt(run, {"name": "made", "world_size": world, "backend": "nccl"})
    ranks = [Rank(run, rank, world, rate) for rank in range(world)]
    begin, done = time.time_ns(), 0
    while (now := time.time_ns() - begin) < seconds * 1e9:
        reached = int(now * rate / 1e9)
        if reached > done:
            for rank in ranks:
                rank.write(begin, done, reached)
            done = reached
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
