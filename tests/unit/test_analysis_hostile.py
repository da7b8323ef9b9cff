# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of any content that the schema allows: every figure has an answer, none an exception or a warning."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import pyarrow as pa
import pytest
from analysis_rows import BASE, tables, two_ranks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtscope_jupyter import schema
from dtscope_jupyter.analysis import conventions
from dtscope_jupyter.export import perfetto
from dtscope_jupyter.reading import encoded, latest_rows
from dtscope_jupyter.run import Run

_WORDS: dict[tuple[str, str], list[str]] = {
    ("spans", "kind"): ["compute", "comm", "memcpy", "memset", "cpu_op", "launch", "annotation", "odd"],
    ("spans", "name"): ["ncclKernel", "gemm", "ProfilerStep#1", "ProfilerStep#2", "c10d::allreduce_", ""],
    ("host", "kind"): ["collective_wait", "input", "gc", "copy", "odd"],
    ("collectives", "operation"): ["all_reduce", "send", "recv", "barrier", "odd"],
    ("collectives", "state"): ["scheduled", "started", "completed", "odd"],
    ("clocks", "host"): ["a", "b"],
}
_SOURCES = ["profiler", "event", "host", "flight_recorder", "odd"]
_SMALL = {"rank": (0, 3), "step": (0, 3), "seq": (0, 4), "bucket": (0, 2), "group_size": (0, 4), "thread": (1, 2), "stream": (7, 8)}


def _values(table: str, column: schema.Column) -> st.SearchStrategy[Any]:
    if column.name.endswith("_ns") and column.name not in {"offset_ns", "uncertainty_ns", "monotonic_offset_ns"}:
        found: st.SearchStrategy[Any] = st.integers(BASE, BASE + 200)
    elif column.name in _SMALL:
        found = st.integers(*_SMALL[column.name])
    elif pa.types.is_integer(column.type):
        found = st.integers(0, 1000)
    elif pa.types.is_floating(column.type):
        found = st.floats(50, 100) if column.name == "comm_ms" else st.floats(0, 50)
    elif pa.types.is_boolean(column.type):
        found = st.booleans()
    elif pa.types.is_list(column.type):
        found = st.lists(st.integers(0, 3), max_size=4)
    else:
        words = _SOURCES if column.name == "source" else _WORDS.get((table, column.name), ["0", "1", "x"])
        found = st.sampled_from(words)
    return found if column.required else st.one_of(st.none(), found)


def _rows(name: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({column.name: _values(name, column) for column in schema.TABLES[name].columns})
    return st.lists(row, max_size=7)


_TABLES = st.fixed_dictionaries({name: _rows(name) for name in ("steps", "collectives", "spans", "host", "clocks", "groups", "gradients")})


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(_TABLES, st.booleans())
def test_any_tables_have_figures(rows: dict[str, list[dict[str, Any]]], coded: bool) -> None:  # noqa: FBT001
    made = tables(**rows)
    run = Run({name: encoded(table) for name, table in made.items()} if coded else made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for by in ("rank", "step", ["rank", "step"], ["rank", "process_group", "operation", "phase"]):
            frame = run.overlap(by)
            ratio = frame["overlap_ratio"].dropna()
            assert ((ratio >= 0) & (ratio <= 1 + 1e-9)).all()
            assert (frame["exposed_ms"] >= -1e-9).all()
        for by in ("rank", "collective", ["step", "bucket"]):
            assert (run.waits(by)["wait_ms"].dropna() >= 0).all()
        for frame in (run.breakdown(), run.breakdown(["rank", "step"]), run.bandwidth(), run.bandwidth(["rank", "bytes"]), run.kernels()):
            assert not frame.duplicated().any()
        for convention in conventions.NAMES:
            run.overlap(convention=convention)
            run.breakdown(convention=convention)
        _ = run.slowdown(), run.copies(), run.buckets(), run.clocks(), run.ranks, run.world_size
        assert str(run.compare(run))
    assert len(latest_rows(run.tables["collectives"])) <= len(rows["collectives"])
    perfetto.write(run.tables, io.BytesIO())


@pytest.mark.parametrize("dropped", sorted(schema.TABLES))
def test_a_run_without_any_one_table(dropped: str) -> None:
    run = Run(tables(**{name: rows for name, rows in two_ranks().items() if name != dropped}))
    assert json.loads(json.dumps(run.report_json(), allow_nan=False))["run"]["ranks"] == [0, 1]
