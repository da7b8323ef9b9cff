# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter import schema, simulate
from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.simulate import CAUSES, Fault
from dtscope_jupyter.simulate.scenarios import draw

EVERY = [(kind, cause) for kind, causes in CAUSES.items() for cause in causes]


@pytest.mark.parametrize(("kind", "cause"), EVERY)
def test_tables_conform_whatever_the_fault(kind: str, cause: str) -> None:
    ranks = () if kind in ("slow_link", "low_overlap") else (1,)
    tables = simulate.run(4, 6, [Fault(kind, cause, ranks, 2, first=2)])
    assert set(tables) == set(schema.TABLES)
    for name, table in tables.items():
        assert table.schema.equals(schema.TABLES[name].arrow)
        table.validate(full=True)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4, 8]))
def test_the_same_seed_gives_the_same_run(seed: int, world_size: int) -> None:
    (program, faults), (again, _) = draw(seed, world_size), draw(seed, world_size)
    assert program == again
    first, second = (simulate.run(faults=faults, **program) for _ in range(2))
    assert all(first[name].equals(second[name]) for name in first if name not in ("steps", "gradients", "notes"))


def test_a_collective_ends_when_the_last_rank_is_there() -> None:
    table = simulate.run(4, 5, [Fault("straggler", "compute", (3,), 0.5)])["collectives"].to_pandas()
    by = table.groupby(["process_group", "seq"])
    assert ((by["end_ns"].min() - by["start_ns"].max()) > 0).all()
    assert ((by["end_ns"].max() - by["end_ns"].min()) < 10_000).all()


def test_a_straggler_makes_the_others_wait_by_its_size() -> None:
    frame = waits(simulate.run(4, 10, [Fault("straggler", "host_stall", (2,), 0.4)], compute_ms=100.0), by=["rank", "step"])
    first = frame.groupby("rank")["wait_ms"].mean()
    assert first[2] < 2
    assert (first[[0, 1, 3]] > 30).all()


def test_steps_follow_each_other_on_each_rank() -> None:
    steps = simulate.run(3, 8)["steps"].to_pandas().sort_values(["rank", "step"])
    start, end = (steps[name].to_numpy().reshape(3, 8) for name in ("start_ns", "end_ns"))
    assert (start[:, 1:] == end[:, :-1]).all()
    assert np.allclose(steps["comm_ms"], steps["overlap_ms"] + steps["exposed_ms"])


def test_what_can_not_be_simulated_is_said() -> None:
    with pytest.raises(DtscopeError, match="no fault 'straggler' with cause 'flu' can be simulated; there are straggler: compute"):
        Fault("straggler", "flu", (1,))
    with pytest.raises(DtscopeError, match="can't simulate 1 ranks"):
        simulate.run(1)
    with pytest.raises(DtscopeError, match="tensor groups of 3"):
        simulate.run(4, tensor=3)
