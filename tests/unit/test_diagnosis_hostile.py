# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtscope_jupyter import schema, simulate
from dtscope_jupyter.diagnosis import diagnose

WORDS: dict[str, list[str]] = {
    "operation": ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "barrier"],
    "process_group": ["0", "1", "dp"],
    "state": ["scheduled", "started", "completed"],
    "kind": [
        "compute",
        "comm",
        "memcpy",
        "launch",
        "sync",
        "input",
        "gc",
        "copy",
        "stack",
        "host_sync",
        "collective_wait",
        "scalar",
        "exit",
    ],
    "phase": ["forward", "backward", "optimizer"],
    "source": ["profiler", "event", "host", "flight_recorder"],
    "name": ["loss", "gemm", "NVIDIA H200", "cudaStreamSynchronize"],
    "copy": ["HtoD pageable", "DtoH"],
}
SMALL = {"rank": 5, "step": 4, "seq": 6, "parameter_id": 3, "bucket": 3, "group_size": 5, "peer": 5}


def values(column: schema.Column) -> st.SearchStrategy[Any]:
    if column.name in SMALL:
        found: st.SearchStrategy[Any] = st.integers(0, SMALL[column.name])
    elif pa.types.is_integer(column.type):
        found = st.integers(0, 10**9) | st.integers(-(2**31), 2**31 - 1)
    elif pa.types.is_floating(column.type):
        found = st.floats(width=64)
    elif pa.types.is_boolean(column.type):
        found = st.booleans()
    elif pa.types.is_list(column.type):
        found = st.lists(st.integers(0, 5), max_size=4)
    else:
        found = st.sampled_from(WORDS.get(column.name, ["a", "b"]))
    return found if column.required else st.none() | found


def rows(table: schema.Table, most: int) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({column.name: values(column) for column in table.columns})
    return st.lists(row, max_size=most).map(lambda found: pa.Table.from_pylist(found, schema=table.arrow))


NAMES = ("steps", "collectives", "gradients", "parameters", "host", "spans", "devices", "clocks", "groups", "notes")
TABLES = st.fixed_dictionaries({name: rows(schema.TABLES[name], 12 if name in ("steps", "collectives") else 4) for name in NAMES})


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(TABLES, st.booleans())
def test_any_tables_get_a_report_that_names_only_their_ranks(tables: dict[str, pa.Table], live: bool) -> None:  # noqa: FBT001
    found = diagnose(tables, live=live)
    known = {rank for table in tables.values() for rank in table["rank"].to_pylist()}
    known |= {rank for ranks in tables["groups"]["ranks"].to_pylist() for rank in ranks or ()}
    for finding in found.findings:
        assert set(finding.ranks) <= known, finding
    json.dumps(found.to_dict(), allow_nan=False)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_a_run_with_cells_missing_names_only_its_ranks(data: st.DataObject, seed: int) -> None:
    tables = simulate.run(3, 5, seed=seed)
    for name in ("steps", "collectives", "groups"):
        table = tables[name]
        for field in schema.TABLES[name].columns:
            if not field.required and data.draw(st.booleans()):
                place = table.schema.get_field_index(field.name)
                table = table.set_column(place, table.schema.field(place), pa.nulls(len(table), field.type))
        tables[name] = table
    assert all(set(finding.ranks) <= {0, 1, 2} for finding in diagnose(tables).findings)


def test_no_tables_at_all_are_no_run() -> None:
    assert diagnose({}).findings == []
