# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from dtscope_jupyter import rundir, schema, store
from dtscope_jupyter.export.otel import observe

if TYPE_CHECKING:
    from pathlib import Path


def test_metrics_come_through_the_sdk(tmp_path: Path) -> None:
    attempt = rundir.create_attempt(tmp_path / "one", {"name": "one"})
    attempt.rank_path(0).mkdir()
    writer = store.BlockWriter(attempt.rank_path(0), "steps")
    rows = [{"rank": 0, "step": step, "start_ns": 10**9 * step, "end_ns": 10**9 * (step + 1), "exposed_ms": 250.0} for step in range(4)]
    writer.append(pa.RecordBatch.from_pylist(rows, schema=schema.STEPS.arrow))
    writer.close()
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    observe(tmp_path, provider.get_meter("test"))
    data = reader.get_metrics_data()
    assert data is not None
    found = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        values = {tuple(sorted((point.attributes or {}).items())): getattr(point, "value", None) for point in metric.data.data_points}
        found[metric.name] = (metric.unit, values)
    provider.shutdown()
    key = (("rank", "0"), ("run", "one"))
    assert found["dtscope.steps"] == ("", {key: 4})
    assert found["dtscope.step.seconds"] == ("s", {key: 4.0})
    assert found["dtscope.exposed.communication.seconds"] == ("s", {key: 1.0})
