# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps on a CPU in which nobody looks at DDP's buckets, since the budget has no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks
import numpy as np
import pytest

from dtscope_jupyter import run as runs

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

_PROGRAM = """
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(96, 96) for _ in range(6)]), bucket_cap_mb=0.08)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number in range(100):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 96)).square().mean()
    if rank == 1:
        time.sleep(0.02)
    loss.backward()
    optimizer.step()
    if number % 25 == 24:
        dist.all_reduce(loss.detach())
value = 0
"""
_FIRST, _ALL = 64, 100
_WHOLE = [*range(17), *range(32, 65), 80, 96]
"""The steps that are looked at: all until the first plan and for the comparison (32 to 63), then one in 16."""


@pytest.fixture(scope="module")
def sampled(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> agent_ranks.Recorded:
    return agent_ranks.run(ranks, _PROGRAM, 2, folder=tmp_path_factory.mktemp("sampled"), budget=0.0001)


def test_every_step_has_its_exposed_time(sampled: agent_ranks.Recorded) -> None:
    """Rank 0 waits for rank 1, which sleeps 20 ms in each step, whether or not the step is looked at."""
    for rank, (least, most) in ((0, (15, 100)), (1, (0, 10))):
        steps = sampled.of("steps", rank)
        assert steps["step"].tolist() == list(range(_ALL))
        assert steps["exposed_ms"].notna().all()
        assert least < steps["exposed_ms"][_FIRST:].median() < most
        length = (steps["end_ns"] - steps["start_ns"]) / 1e6
        assert np.allclose((steps["compute_ms"] + steps["exposed_ms"])[_FIRST:], length[_FIRST:], atol=0.5)


def test_buckets_are_seen_in_the_same_steps_on_all_ranks(sampled: agent_ranks.Recorded) -> None:
    seen = [sampled.of("collectives", rank).dropna(subset="bucket") for rank in range(2)]
    closely = [sorted(set(rows["step"][rows["step"] >= _FIRST])) for rows in seen]
    assert closely == [[64, 80, 96], [64, 80, 96]]
    assert (seen[0].groupby("step")["bytes"].sum() == 4 * 6 * (96 * 96 + 96)).all()
    gradients = sampled.of("gradients", 0)
    assert sorted(set(gradients["step"][gradients["step"] >= _FIRST])) == [64, 80, 96]
    assert gradients["ready_ns"].notna().all()
    steps = sampled.of("steps", 0)
    assert steps["step"][steps["comm_ms"].notna()].tolist() == _WHOLE


def test_the_programs_own_collectives_are_always_seen(sampled: agent_ranks.Recorded) -> None:
    collectives = sampled.of("collectives", 0)
    own = collectives[collectives["bucket"].isna() & (collectives["operation"] == "all_reduce")]
    assert len(own) == 4
    assert own["end_ns"].notna().all()


def test_the_analysis_takes_the_ranks_word_for_the_others(sampled: agent_ranks.Recorded) -> None:
    overlap = runs.open(sampled.folder).overlap(["rank", "step"])
    mine = overlap[overlap["rank"] == 0].set_index("step")
    own = sampled.of("steps", 0).set_index("step")["exposed_ms"]
    others = [step for step in range(_FIRST + 1, _ALL) if step % 16]
    assert mine.loc[others, "exposed_ms"].to_numpy() == pytest.approx(own.loc[others].to_numpy(), abs=0.01)
    assert mine.loc[others, "comm_ms"].isna().all()


def test_buckets_end_within_their_backward_whoever_has_the_interpreters_lock(ranks: Ranks, tmp_path: Path) -> None:
    """A backend's thread notes ends, for which it needs the lock; DDP has waited by then."""
    source = """
import threading
over = threading.Event()
def burn():
    while not over.is_set():
        pass
threading.Thread(target=burn).start()
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(96, 96) for _ in range(6)]), bucket_cap_mb=0.08)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number in range(25):
    optimizer.zero_grad()
    model(torch.randn(16, 96)).square().mean().backward()
    optimizer.step()
over.set()
value = 0
"""
    recorded = agent_ranks.run(ranks, source, 2, folder=tmp_path)
    for rank in range(2):
        steps = recorded.of("steps", rank).set_index("step")
        buckets = recorded.of("collectives", rank).dropna(subset="bucket")
        assert len(buckets) > 2 * 10
        assert (buckets["end_ns"].to_numpy() <= steps["backward_end_ns"].loc[buckets["step"]].to_numpy()).all()
