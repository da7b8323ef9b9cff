# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of very different length, alike on all ranks: simulated runs whose time goes faster and slower from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import Severity, diagnose
from dtscope_jupyter.simulate import Fault

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis import Finding

Values = np.ndarray[Any, np.dtype[np.float64]]
_CLOCKS = ("start_ns", "end_ns", "enqueue_ns", "time_ns", "backward_start_ns", "backward_end_ns", "optimizer_start_ns", "optimizer_end_ns")


def uneven(tables: dict[str, pa.Table], seed: int) -> dict[str, pa.Table]:
    """The tables with every step as many times as long as a log-normal factor says, of which one in six is above 2.7."""
    steps = tables["steps"]
    number = steps["step"].to_numpy()
    ends = steps["end_ns"].to_numpy()[number == number.max()]
    starts = [np.median(steps["start_ns"].to_numpy()[number == one]) for one in range(number.max() + 1)]
    edges = np.array([*starts, np.median(ends)])
    factor = np.exp(np.random.default_rng(seed).normal(0, 1, len(starts)))
    new = edges[0] + np.concatenate(([0], np.cumsum(np.diff(edges) * factor)))

    def warped(values: Values) -> Values:
        beyond = np.maximum(values - edges[-1], 0) + np.minimum(values - edges[0], 0)
        return np.asarray(np.interp(values, edges, new) + beyond)

    def change(name: str, table: pa.Table) -> pa.Table:
        for place, column in enumerate(table.column_names):
            values = np.array(table[column].to_pylist(), dtype=np.float64) if column.endswith(("_ns", "_ms")) else None
            if values is None or not len(table) or not (column in _CLOCKS or (name == "steps" and column.endswith("_ms"))):
                continue
            values = warped(values) if column in _CLOCKS else values * factor[number]
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(values, from_pandas=True).cast(field.type, safe=False))
        return table

    return {name: change(name, table) for name, table in tables.items()}


def found(seed: int, world_size: int, *faults: Fault) -> list[Finding]:
    return diagnose(uneven(simulate.run(world_size, 30, faults, seed=seed), seed)).findings


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("world_size", [2, 8])
def test_a_healthy_run_has_nothing_loud(seed: int, world_size: int) -> None:
    assert [each for each in found(seed, world_size) if each.severity is not Severity.INFO] == []


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("world_size", [2, 8])
@pytest.mark.parametrize(("cause", "size", "every"), [("compute", 0.3, 1), ("slow_device", 0.3, 1), ("input", 0.5, 3)])
def test_a_rank_that_is_late_by_a_share_of_each_step_is_named(cause: str, size: float, every: int, seed: int, world_size: int) -> None:
    (finding,) = found(seed, world_size, Fault("straggler", cause, (1,), size, every=every))
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", cause, (1,))
    assert finding.severity is not Severity.INFO


@pytest.mark.parametrize("seed", [4, 6, 7, 10])
@pytest.mark.parametrize("cause", ["host_stall", "compute"])
def test_a_fault_that_makes_steps_uneven_begins_when_it_did(cause: str, seed: int) -> None:
    (finding,) = diagnose(simulate.run(4, 60, (Fault("straggler", cause, (1,), 2.5, first=20),), seed=seed)).findings
    assert (finding.ranks, finding.steps) == ((1,), tuple(range(20, 60)))
