# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of the runs in a directory, for monitoring: totals from every row, means and findings from the last steps.

Named and scaled as Prometheus has it (seconds, bytes, ratios; `_total` counts from the watcher's start over the whole run).
Labels are bounded: the newest runs, the ranks there are, and a limited number of process groups, the rest is `other`.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.analysis.bandwidth import bandwidth
from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.diagnosis import CAUSES, diagnose
from dtscope_jupyter.reading import encoded, latest_rows
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dtscope_jupyter.rundir import Attempt

log = logging.getLogger(__name__)

COUNTER, GAUGE = "counter", "gauge"
_RUNS = 8
_GROUPS = 32
_RECENT_ROWS = {"steps": 20_000, "collectives": 60_000, "host": 20_000, "notes": 20_000, "devices": 20_000}
_TABLES = ("steps", "collectives", "host", "notes", "groups", "clocks", "parameters", "devices")
_ANALYSIS_SHARE = 0.1
_ANALYSIS_S = 5.0
_MS = 1e-3
_NS = 1e-9

Key = tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    """One family: `samples` by the values of `labels`."""

    name: str
    kind: str
    help: str
    labels: Key
    samples: dict[Key, float] = field(default_factory=lambda: defaultdict(float))


def _families() -> dict[str, Metric]:
    rank, group = ("run", "rank"), ("run", "rank", "process_group", "operation")
    return {
        metric.name: metric
        for metric in (
            Metric("dtscope_steps", COUNTER, "Training steps.", rank),
            Metric("dtscope_step_seconds", COUNTER, "Time of training steps.", rank),
            Metric("dtscope_compute_seconds", COUNTER, "Time of steps in which the rank computes.", rank),
            Metric("dtscope_communication_seconds", COUNTER, "Time of steps with a collective in flight.", rank),
            Metric("dtscope_overlap_seconds", COUNTER, "Communication and compute at once.", rank),
            Metric("dtscope_exposed_communication_seconds", COUNTER, "Communication without compute.", rank),
            Metric("dtscope_input_seconds", COUNTER, "Waiting for the data loader.", rank),
            Metric("dtscope_collectives", COUNTER, "Collectives that are completed.", group),
            Metric("dtscope_collective_bytes", COUNTER, "Message sizes of completed collectives.", group),
            Metric("dtscope_collective_seconds", COUNTER, "Durations of completed collectives.", group),
            Metric("dtscope_dropped_rows", COUNTER, "Rows that a rank could not keep.", rank),
            Metric("dtscope_observer_ratio", GAUGE, "Share of step time that observing costs, as the rank measures it.", rank),
            Metric("dtscope_last_step_end_timestamp_seconds", GAUGE, "Unix time at which the rank's last step ended.", rank),
            Metric("dtscope_wait_seconds", GAUGE, "Waiting for later ranks in collectives, mean of a step over the last steps.", rank),
            Metric(
                "dtscope_bus_bandwidth_bytes_per_second", GAUGE, "Bus bandwidth over the last steps, as nccl-tests counts it.",
                ("run", "process_group", "operation"),
            ),
            Metric("dtscope_findings", GAUGE, "Findings over the last steps.", ("run", "kind", "cause", "severity")),
        )
    }


_STEP_SUMS = {
    "dtscope_compute_seconds": "compute_ms",
    "dtscope_communication_seconds": "comm_ms",
    "dtscope_overlap_seconds": "overlap_ms",
    "dtscope_exposed_communication_seconds": "exposed_ms",
    "dtscope_input_seconds": "input_ms",
}


class Watcher:
    """Follows the newest runs of a directory; `poll` reads on, `metrics` gives the state."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds run directories, or is one."""
        self._folder = folder
        self._runs: dict[Path, _Run] = {}

    def poll(self) -> None:
        """Reads what is new."""
        for attempt in self._attempts():
            if attempt.path not in self._runs:
                self._runs[attempt.path] = _Run(attempt)
            self._runs[attempt.path].poll()

    def metrics(self) -> list[Metric]:
        """Every family, with the samples of all runs that are followed."""
        merged = _families()
        for run in self._runs.values():
            for name, metric in run.metrics.items():
                merged[name].samples.update(metric.samples)
        return list(merged.values())

    def _attempts(self) -> list[Attempt]:
        folders = [self._folder] if rundir.is_run(self._folder) else [path for path in self._folder.iterdir() if path.is_dir()]
        attempts = [attempt for path in folders if not path.is_symlink() for attempt in rundir.attempts(path)[-1:]]
        newest = sorted(attempts, key=lambda attempt: attempt.path.stat().st_mtime)[-_RUNS:]
        for gone in self._runs.keys() - {attempt.path for attempt in newest}:
            del self._runs[gone]
        return newest


class _Run:
    """The newest attempt of one run."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._name = attempt.run.name if attempt.number == 0 else f"{attempt.run.name}/{attempt.path.name}"
        self._readers: dict[tuple[int, str], BlockReader] = {}
        self._recent: dict[str, deque[pa.RecordBatch]] = {name: deque() for name in schema.TABLES}
        self._rows = dict.fromkeys(schema.TABLES, 0)
        self._groups: set[str] = set()
        self._unreadable: set[tuple[int, str]] = set()
        self._due = 0.0
        self._new = False
        self.metrics = _families()

    def poll(self) -> None:
        """Takes in new rows; analyses the last steps where that is due."""
        for rank in self._attempt.ranks():
            for table in _TABLES:
                self._poll(rank, table)
        if self._new and time.monotonic() >= self._due:
            begin = time.thread_time()
            self._analyse()
            self._new = False
            self._due = time.monotonic() + max(_ANALYSIS_S, (time.thread_time() - begin) / _ANALYSIS_SHARE)

    def _poll(self, rank: int, table: str) -> None:
        reader = self._readers.setdefault((rank, table), BlockReader(self._attempt.rank_path(rank), table))
        take = {"steps": self._steps, "collectives": self._collectives, "notes": self._notes}.get(table)
        try:
            for batch in reader.batches():
                self._new = True
                self._keep(table, batch)
                if take:
                    take((self._name, str(rank)), batch)
        except OSError as error:
            if (rank, table) not in self._unreadable:
                self._unreadable.add((rank, table))
                log.warning("%s of rank %d of %s can't be read: %s", table, rank, self._name, error.strerror)

    def _keep(self, table: str, batch: pa.RecordBatch) -> None:
        recent = self._recent[table]
        recent.append(batch)
        self._rows[table] += len(batch)
        while table in _RECENT_ROWS and len(recent) > 1 and self._rows[table] > _RECENT_ROWS[table]:
            self._rows[table] -= len(recent.popleft())

    def _add(self, name: str, key: Key, value: float | None) -> None:
        if value is not None:
            self.metrics[name].samples[key] += value

    def _steps(self, key: Key, batch: pa.RecordBatch) -> None:
        self._add("dtscope_steps", key, len(batch))
        spans = pc.subtract(batch.column("end_ns"), batch.column("start_ns"))
        self._add("dtscope_step_seconds", key, (pc.sum(spans).as_py() or 0) * _NS)
        for name, column in _STEP_SUMS.items():
            self._add(name, key, (pc.sum(batch.column(column)).as_py() or 0.0) * _MS)
        last = pc.max(batch.column("end_ns")).as_py()
        if last is not None:
            self.metrics["dtscope_last_step_end_timestamp_seconds"].samples[key] = last * _NS

    def _collectives(self, key: Key, batch: pa.RecordBatch) -> None:
        done = pa.Table.from_batches([batch]).filter(pc.is_valid(batch.column("end_ns")))
        done = done.append_column("span", pc.subtract(done["end_ns"], done["start_ns"]))
        sums = done.group_by(["process_group", "operation"]).aggregate([("rank", "count"), ("bytes", "sum"), ("span", "sum")])
        for row in sums.to_pylist():
            label = (*key, *self._group(row["process_group"], row["operation"]))
            self._add("dtscope_collectives", label, row["rank_count"])
            self._add("dtscope_collective_bytes", label, row["bytes_sum"])
            self._add("dtscope_collective_seconds", label, (row["span_sum"] or 0) * _NS)

    def _group(self, process_group: str, operation: str) -> Key:
        known = process_group in self._groups or len(self._groups) < _GROUPS
        if known:
            self._groups.add(process_group)
        return (process_group if known else "other", operation)

    def _notes(self, key: Key, batch: pa.RecordBatch) -> None:
        for row in batch.select(["kind", "name", "value"]).to_pylist():
            if row["kind"] == "dropped":
                self._add("dtscope_dropped_rows", key, row["value"])
            elif row["kind"] == "observer" and row["name"] == "cost_ratio" and row["value"] is not None:
                self.metrics["dtscope_observer_ratio"].samples[key] = row["value"]

    def _analyse(self) -> None:
        tables = {name: pa.Table.from_batches(list(batches), schema.TABLES[name].arrow) for name, batches in self._recent.items()}
        tables["collectives"] = latest_rows(tables["collectives"])
        tables = {name: encoded(table) for name, table in tables.items()}
        self._replace("dtscope_wait_seconds", self._waits(tables))
        self._replace("dtscope_bus_bandwidth_bytes_per_second", self._bandwidths(tables))
        self._replace("dtscope_findings", self._findings(tables))

    def _replace(self, name: str, samples: Iterable[tuple[Key, float]]) -> None:
        found = self.metrics[name].samples
        found.clear()
        for key, value in samples:
            found[key] += value

    def _waits(self, tables: dict[str, pa.Table]) -> Iterable[tuple[Key, float]]:
        steps = max(1, pc.count_distinct(tables["collectives"]["step"]).as_py())
        for row in waits(tables, by="rank").to_dict("records"):
            yield (self._name, str(row["rank"])), row["wait_ms"] * _MS / steps

    def _bandwidths(self, tables: dict[str, pa.Table]) -> Iterable[tuple[Key, float]]:
        for row in bandwidth(tables, by=["process_group", "operation"]).to_dict("records"):
            yield (self._name, *self._group(row["process_group"], row["operation"])), row["bus_gb_s"] * 1e9

    def _findings(self, tables: dict[str, pa.Table]) -> Iterable[tuple[Key, float]]:
        for finding in diagnose(tables, live=True).findings:
            assert finding.cause in CAUSES[finding.kind]
            yield (self._name, finding.kind, finding.cause, str(finding.severity)), 1.0
