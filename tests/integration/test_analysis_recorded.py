# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What real ranks recorded, analysed: the figures agree with the ranks' own and with DDP's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks
import numpy as np
import pytest

from dtscope_jupyter import run as runs

if TYPE_CHECKING:
    from ranks import Ranks

_PROGRAM = """
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(10)]), bucket_cap_mb=0.6)
model._set_ddp_runtime_logging_sample_rate(1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
value = []
for number in range(14):
    if rank == 1 and number > 2:
        time.sleep(0.2)
    optimizer.zero_grad()
    model(torch.randn(64, 256)).square().mean().backward()
    optimizer.step()
    log = model._get_ddp_logging_data()
    value.append((log.get("backward_comm_time"), log.get("backward_compute_comm_overlap_time")))
"""


@pytest.fixture(scope="module")
def recorded(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> agent_ranks.Recorded:
    return agent_ranks.run(ranks, _PROGRAM, 2, folder=tmp_path_factory.mktemp("recorded"), budget=1.0)


def test_overlap_is_the_ranks_own(recorded: agent_ranks.Recorded) -> None:
    """In steps that no late end of a collective reaches into or out of, as on a busy machine: the rank cuts there."""
    run = runs.open(recorded.folder)
    keys = ["rank", "step"]
    own = run.table("steps").sort_values(keys).reset_index(drop=True)
    last = run.table("collectives").groupby(keys)["end_ns"].max().to_numpy()
    crosses = last > own["end_ns"].to_numpy()
    clean = ~crosses & ~np.roll(crosses, 1)
    ours = run.overlap(keys)
    assert ours[keys].to_numpy().tolist() == own[keys].to_numpy().tolist()
    assert clean.any()
    for figure in ("comm_ms", "compute_ms", "overlap_ms", "exposed_ms"):
        assert ours[figure].to_numpy()[clean] == pytest.approx(own[figure].to_numpy()[clean], abs=0.05)


def test_overlap_agrees_with_ddps_own(recorded: agent_ranks.Recorded) -> None:
    """DDP measures from its first bucket to its last, gaps between them (as on the late rank) too, and tells of a step in the one after."""
    run, keys = runs.open(recorded.folder), ["rank", "step"]
    buckets = run.table("collectives").dropna(subset="bucket").groupby(keys).agg({"start_ns": "min", "end_ns": "max"})
    spans = (buckets["end_ns"] - buckets["start_ns"]) / 1e6
    exposed = run.overlap(keys).set_index(keys)["exposed_ms"]
    for rank in range(2):
        comm, overlap = np.array(recorded.values[rank], dtype=float)[3:].sum(axis=0)
        assert 1 - exposed[rank].loc[2:12].sum() / spans[rank].loc[2:12].sum() == pytest.approx(overlap / comm, abs=0.1)


def test_the_late_rank_makes_the_other_wait(recorded: agent_ranks.Recorded) -> None:
    run = runs.open(recorded.folder)
    by_step = run.waits(["rank", "step"])
    late = by_step[by_step["step"] > 2].groupby("rank")["wait_ms"].sum()
    assert late[0] > 1100, "rank 1 sleeps 200 ms in each of 11 steps"
    assert late[0] > 2 * late[1]
    each = run.waits("collective")
    assert len(each) == len(recorded.of("collectives", 0))
    assert each["ranks"].tolist() == [2] * len(each)
    steps = run.table("steps")
    length = (steps["end_ns"] - steps["start_ns"]) / 1e6
    assert run.breakdown()["wall_ms"].tolist() == pytest.approx(length.groupby(steps["rank"]).sum().tolist())
