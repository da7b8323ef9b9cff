# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A trace that holds events more than once counts each once."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_files import GLOO, event, kernel, launch, steps, trace

from dtscope_jupyter import ingest

if TYPE_CHECKING:
    import pyarrow as pa

    from dtscope_jupyter.ingest.rows import Tables

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
ON_DEVICE = [
    *steps(2),
    *(launch(10.0 + 100 * n, n) for n in range(8)),
    *(kernel(NCCL if n % 2 else "gemm", 20.0 + 100 * n, 70.0, n, 20 if n % 2 else 7) for n in range(8)),
    *(event("cpu_op", "aten::mm", 5.0 + 100 * n, 20.0) for n in range(8)),
    *(event("cpu_op", "aten::mm", 5.0 + 100 * n, 20.0) for n in range(8)),  # one within the other, as long as it
]


def _tables(events: list[dict[str, Any]]) -> Tables:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json"
        path.write_text(json.dumps(trace(events)))
        return ingest.read([path]).tables


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_kernels_written_again_count_once(data: st.DataObject) -> None:
    device = [one for one in ON_DEVICE if one["cat"] == "kernel"]
    again = data.draw(st.lists(st.sampled_from(device), min_size=1)) + data.draw(st.lists(st.sampled_from(ON_DEVICE[:18])))
    mixed = data.draw(st.permutations([*ON_DEVICE, *again]))
    plain, found = _tables(ON_DEVICE), _tables(mixed)
    for name in ("steps", "collectives"):
        assert _rows(found[name]) == _rows(plain[name])
    of_device = [[row for row in _rows(tables["spans"]) if "'stream': None" not in row] for tables in (found, plain)]
    assert of_device[0] == of_device[1]
    notes = [row for row in found["notes"].to_pylist() if "there again" in row["text"]]
    assert [row["value"] >= len(again) for row in notes] == [True]


def test_equal_operators_one_within_another_stay_two() -> None:
    operators = [row for row in _tables(ON_DEVICE)["spans"].to_pylist() if row["kind"] == "cpu_op"]
    assert len(operators) == 16


def test_a_gloo_trace_written_twice_counts_once() -> None:
    events = json.loads(gzip.decompress((GLOO / "rank0.json.gz").read_bytes()))["traceEvents"]
    plain, found = _tables(events), _tables([*events, *events])
    for name in ("steps", "collectives"):
        assert plain[name].num_rows
        assert _rows(found[name]) == _rows(plain[name])
