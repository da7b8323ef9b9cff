# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of made-up runs whose figures are known, for the tests of what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dtscope_jupyter import schema

ORIGIN = 1_764_000_000_000_000_000
STEP_NS = 100_000_000
Rows = list[dict[str, Any]]


def tables(**rows: Rows) -> dict[str, pa.Table]:
    """All tables, those named with the rows given."""
    return {name: pa.Table.from_pylist(rows.get(name, []), schema=table.arrow) for name, table in schema.TABLES.items()}


def ddp(ranks: int = 4, steps: int = 12, *, late: int | None = None, exposed_ms: float = 1.0, parameters: int = 4) -> dict[str, pa.Table]:
    """A DDP run: 60 ms of compute, one bucket from 40 ms on that ends `exposed_ms` after the last rank's compute.

    The rank `late` computes, and calls, 20 ms later in the second half of the run. Rank r's clock is everybody's.
    """
    rows: dict[str, Rows] = {name: [] for name in ("steps", "collectives", "host", "gradients", "parameters", "groups")}
    for rank in range(ranks):
        for step in range(steps):
            _step(rows, rank, step, ranks, late if step >= steps // 2 else None, exposed_ms)
        for i in range(parameters):
            _parameter(rows, rank, i, steps - 1)
        rows["groups"].append({"rank": rank, "process_group": "0", "backend": "gloo", "ranks": list(range(ranks))})
    return tables(**rows)


def _step(rows: dict[str, Rows], rank: int, step: int, ranks: int, late: int | None, exposed_ms: float) -> None:
    start = ORIGIN + step * STEP_NS
    own = 20_000_000 if rank == late else 0
    done = start + 60_000_000 + own
    end = start + 60_000_000 + (20_000_000 if late is not None else 0) + round(exposed_ms * 1e6)
    rows["steps"].append({
        "rank": rank, "step": step, "start_ns": start, "end_ns": start + STEP_NS,
        "synced_norm": 1.0 + step, "nonfinite": 0, "source": "host",
    })
    rows["collectives"].append({
        "rank": rank, "step": step, "seq": step, "process_group": "0", "group_size": ranks, "operation": "all_reduce", "bytes": 25 * 2**20,
        "bucket": 0, "start_ns": start + 40_000_000 + own, "end_ns": end, "state": "completed", "source": "host",
    })
    rows["host"].append({"rank": rank, "step": step, "kind": "collective_wait", "start_ns": done, "end_ns": end})


def _parameter(rows: dict[str, Rows], rank: int, place: int, step: int) -> None:
    rows["parameters"].append({"rank": rank, "parameter_id": place, "parameter": f"layers.{place}.weight"})
    ready = ORIGIN + step * STEP_NS + 1_000_000 * (10 - place)
    norm = 0.01 * 3**place + rank * 1e-4
    rows["gradients"].append({"rank": rank, "step": step, "parameter_id": place, "ready_ns": ready, "local_norm": norm})


def stuck(ranks: int = 4, culprit: int = 3, seq: int = 30) -> dict[str, pa.Table]:
    """Dumps without times: all but the culprit wait in `seq`, which it never called."""
    rows = [
        {
            "rank": rank, "seq": number, "process_group": "0", "operation": "all_reduce", "bytes": 1024, "source": "flight_recorder",
            "state": "scheduled" if number == seq else "completed",
        }
        for rank in range(ranks)
        for number in range(seq + (rank != culprit))
    ]
    return tables(collectives=rows)


def pixels(png: bytes) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """The picture as `[y, x, rgb]`."""
    from io import BytesIO

    from PIL import Image

    return np.asarray(Image.open(BytesIO(png)).convert("RGB"))
