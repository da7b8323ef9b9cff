# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of simulated runs, scraped over HTTP, and every query of the dashboard asked of a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dtscope_jupyter import rundir, schema, simulate, store
from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.export import prometheus
from dtscope_jupyter.export.metrics import Watcher
from dtscope_jupyter.simulate import Fault
from tests.waiting import free_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator

LABELS = ("run", "rank", "process_group", "operation", "kind", "cause", "severity")
DASHBOARD = Path(__file__).parents[2] / "dashboards" / "grafana.json"


@contextmanager
def _writers(run: Path, ranks: int) -> Iterator[dict[tuple[int, str], store.BlockWriter]]:
    attempt = rundir.create_attempt(run, {"name": run.name})
    writers = {}
    for rank in range(ranks):
        attempt.rank_path(rank).mkdir(mode=0o700)
        for table in schema.TABLES:
            writers[rank, table] = store.BlockWriter(attempt.rank_path(rank), table)
    yield writers
    for writer in writers.values():
        writer.close()


def _write(writers: dict[tuple[int, str], store.BlockWriter], tables: dict[str, pa.Table], steps: range) -> None:
    """Appends the rows of these steps (rows of no step with the first), as ranks do."""
    for (rank, name), writer in writers.items():
        table = tables[name].cast(schema.TABLES[name].arrow)
        rows = table.filter(pc.equal(table["rank"], rank))
        if "step" in rows.column_names:
            inside = pc.and_(pc.greater_equal(rows["step"], steps.start), pc.less(rows["step"], steps.stop))
            rows = rows.filter(pc.fill_null(inside, steps.start == 0))
        elif steps.start:
            continue
        if len(rows):
            writer.append(rows.combine_chunks().to_batches()[0])


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return simulate.run(3, 40, [Fault("straggler", "compute", (1,), 0.4)])


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen([sys.executable, "-m", "dtscope_jupyter.export.prometheus", str(folder), address])
    try:
        until(lambda: _get(f"http://{address}/metrics"))
        yield address
    finally:
        process.terminate()
        assert process.wait(60) == 0


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def _samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sample.labels[name] for name in LABELS if name in sample.labels)
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def _complete(samples: dict[str, dict[tuple[str, ...], float]], tables: dict[str, pa.Table]) -> bool:
    """Whether every row was read: what is served may be of a moment between two writes."""
    return all(sum(samples.get(f"dtscope_{name}_total", {}).values()) >= len(tables[name]) for name in ("steps", "collectives"))


def test_totals_are_those_of_the_tables(tmp_path: Path, tables: dict[str, pa.Table]) -> None:
    with _writers(tmp_path / "runs" / "one", 3) as writers, _serving(tmp_path / "runs") as address:
        _write(writers, tables, range(20))
        _write(writers, tables, range(20, 40))
        url = f"http://{address}/metrics"
        samples = until(lambda: found if _complete(found := _samples(_get(url)), tables) else None)
        until(lambda: {key[1:] for key in _samples(_get(url)).get("dtscope_findings", {})} == {("straggler", "compute", "critical")})
    steps = tables["steps"].to_pandas()
    for rank in range(3):
        mine = steps[steps["rank"] == rank]
        assert samples["dtscope_exposed_communication_seconds_total"]["one", str(rank)] == pytest.approx(mine["exposed_ms"].sum() / 1e3)
        assert samples["dtscope_step_seconds_total"]["one", str(rank)] == pytest.approx((mine["end_ns"] - mine["start_ns"]).sum() / 1e9)
    collectives = tables["collectives"].to_pandas()
    assert sum(samples["dtscope_collective_bytes_total"].values()) == collectives["bytes"].sum()
    assert sum(samples["dtscope_collectives_total"].values()) == len(collectives)


def test_waits_name_the_straggler(tmp_path: Path, tables: dict[str, pa.Table]) -> None:
    with _writers(tmp_path / "one", 3) as writers:
        _write(writers, tables, range(40))
    watcher = Watcher(tmp_path)
    watcher.poll()
    found = {metric.name: metric.samples for metric in watcher.metrics()}["dtscope_wait_seconds"]
    expected = waits(tables, by="rank").set_index("rank")["wait_ms"]
    assert found["one", "1"] == min(found.values())
    for rank in range(3):
        assert found["one", str(rank)] == pytest.approx(expected[rank] / 1e3 / 40)


def test_labels_are_bounded(tmp_path: Path) -> None:
    with _writers(tmp_path / "one", 1) as writers:
        arrow = schema.COLLECTIVES.arrow
        rows = [{"rank": 0, "process_group": f"pg{i}", "operation": "x", "bytes": 1, "start_ns": i, "end_ns": i + 1} for i in range(500)]
        writers[0, "collectives"].append(pa.RecordBatch.from_pylist(rows, schema=arrow))
    watcher = Watcher(tmp_path)
    watcher.poll()
    found = {metric.name: metric.samples for metric in watcher.metrics()}["dtscope_collective_bytes"]
    assert len(found) == 33
    assert found["one", "0", "other", "x"] == 500 - 32


@pytest.mark.parametrize("address", ["", "x", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1"])
def test_an_address_that_is_no_good(tmp_path: Path, address: str) -> None:
    import threading

    with pytest.raises(DtscopeError, match="HOST:PORT"):
        prometheus.serve(tmp_path, address, threading.Event())


def test_every_query_of_the_dashboard(tmp_path: Path, tables: dict[str, pa.Table]) -> None:
    program = shutil.which("prometheus")
    if program is None:
        assert not os.environ.get("CI"), "script/setup unpacks Debian's prometheus"
        pytest.skip("no prometheus; script/setup unpacks Debian's")
    queries = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    assert len(queries) >= 12
    dropped = [
        {"rank": 0, "kind": "dropped", "name": "steps", "value": 3.0},
        {"rank": 0, "kind": "observer", "name": "cost_ratio", "value": 0.01},
    ]
    runs = tmp_path / "runs"
    with _writers(runs / "one", 3) as writers, _serving(runs) as address, _prometheus(tmp_path, program, address) as api:
        for first in range(0, 40, 4):
            _write(writers, tables, range(first, first + 4))
            writers[0, "notes"].append(pa.RecordBatch.from_pylist(dropped, schema=schema.NOTES.arrow))
            time.sleep(1.0)
        for query in queries:
            asked = query.replace("$__rate_interval", "1m").replace("$run", ".*")
            result = until(lambda: _ask(api, asked))  # noqa: B023 - called at once
            assert all(re.fullmatch(r"-?[\d.e+-]+", item["value"][1]) for item in result), (query, result)
        by_rank = {item["metric"]["rank"]: float(item["value"][1]) for item in until(lambda: _ask(api, "dtscope_wait_seconds"))}
        assert min(by_rank, key=by_rank.__getitem__) == "1"


@contextmanager
def _prometheus(folder: Path, program: str, target: str) -> Iterator[str]:
    configuration = folder / "prometheus.yml"
    scrape = {"job_name": "dtscope", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    configuration.write_text(json.dumps({"scrape_configs": [scrape]}))
    listen = f"127.0.0.1:{free_port()}"
    arguments = [f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={listen}"]
    process = subprocess.Popen([program, *arguments], stderr=subprocess.DEVNULL)
    try:
        until(lambda: _get(f"http://{listen}/-/ready"))
        yield f"http://{listen}/api/v1"
    finally:
        process.terminate()
        process.wait(60)


def _ask(api: str, query: str) -> list[dict[str, Any]]:
    text = _get(f"{api}/query?{urllib.parse.urlencode({'query': query})}")
    if not text:
        return []
    answer = json.loads(text)
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found
