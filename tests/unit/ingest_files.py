# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Small traces and dumps as torch writes them, made by hand for the tests of the readers."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

GLOO = Path(__file__).parents[1] / "data" / "gloo"
BASE = 1_790_857_026_000_000_000
STEP_US = 1000.0


def event(cat: str, name: str, ts: float, dur: float, tid: int | str = 1, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {k.replace("_", " "): v for k, v in args.items()},
    }


def kernel(name: str, ts: float, dur: float, correlation: int, stream: int = 7, **args: Any) -> dict[str, Any]:
    return event("kernel", name, ts, dur, stream, correlation=correlation, stream=stream, **args)


def launch(ts: float, correlation: int, tid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 5.0, tid, correlation=correlation)


def steps(count: int) -> list[dict[str, Any]]:
    return [event("user_annotation", f"ProfilerStep#{n + 3}", n * STEP_US, STEP_US - 1) for n in range(count)]


def trace(events: list[dict[str, Any]], rank: int | None = 0, **around: Any) -> dict[str, Any]:
    info = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}} if rank is not None else {}
    return {"schemaVersion": 1, **info, "traceEvents": events, "traceName": "t", "baseTimeNanoseconds": BASE, **around}


def write(path: Path, value: Any) -> Path:
    data = json.dumps(value).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def entry(seq: int, created: int, **changes: Any) -> dict[str, Any]:
    plain = {
        "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"), "thread_id": "1", "thread_name": "python",
        "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": "nccl:all_reduce", "time_created_ns": created,
        "input_sizes": [[4, 2]], "input_dtypes": ["Float"], "output_sizes": [[4, 2]], "output_dtypes": ["Float"], "state": "completed",
        "time_discovered_started_ns": created + 10, "time_discovered_completed_ns": created + 100_000_000, "retired": True,
        "timeout_ms": 600000, "is_p2p": False, "frames": [],
    }  # fmt: skip
    return {**plain, **changes}


def dump(entries: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    last = max((e["collective_seq_id"] for e in entries), default=0)
    plain = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": last}},
        "entries": entries,
    }
    return {**plain, **changes}


def pickled(path: Path, value: Any, protocol: int = 2) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path
