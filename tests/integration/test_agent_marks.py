# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps like the ones before, of which a rank's hooks leave no more than marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

_FIRST, _ALL = 64, 112
"""From the first on, after a comparison, one step in 16 is looked at."""
_PROGRAM = """
from dtscope_jupyter.agent.steps import Steps
marked, segment = [], Steps._segment
Steps._segment = lambda steps, step, marks: (marked.append(step), segment(steps, step, marks))[1]
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(96, 96) for _ in range(6)]), bucket_cap_mb=0.08)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def train(factor=1.0, pause=0.0):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 96)).square().mean()
    time.sleep(pause)
    (loss * factor).backward()
    norm = torch.stack([p.grad.double().norm() for p in model.parameters()]).norm().item()
    optimizer.step()
    return norm
"""


def _run(ranks: Ranks, folder: Path, loop: str) -> agent_ranks.Recorded:
    return agent_ranks.run(ranks, _PROGRAM + loop, 2, folder=folder, budget=0.0001)


def test_their_rows_are_whole(ranks: Ranks, tmp_path: Path) -> None:
    loop = f"""
norms = [train() for _ in range({_ALL})]
armed.recorder.flush()
value = marked, norms
"""
    recorded = _run(ranks, tmp_path, loop)
    for rank, (marked, norms) in enumerate(recorded.values):
        assert len([step for step in marked if step >= _FIRST]) > 0.7 * (_ALL - _FIRST)
        steps = recorded.of("steps", rank)
        assert steps["step"].tolist() == list(range(_ALL))
        assert steps["synced_norm"].to_numpy() == pytest.approx(norms, rel=1e-5), "every step has its flat norm"
        assert (steps["micro_batches"] == 1).all()
        late = steps[_FIRST:]
        assert late[["exposed_ms", "compute_ms", "thread_cpu_ms", "thread_delay_ms"]].notna().all(axis=None)
        times = late[["start_ns", "backward_start_ns", "backward_end_ns", "optimizer_start_ns", "end_ns"]].to_numpy()
        assert (np.diff(times, axis=1) > 0).all()
        assert (late["start_ns"].to_numpy()[1:] == late["end_ns"].to_numpy()[:-1]).all(), "steps are contiguous"


def test_what_a_rank_spoils_is_told_of_that_rank(ranks: Ranks, tmp_path: Path) -> None:
    loop = f"""
for number in range({_ALL}):
    train(float("nan") if (number, rank) == (74, 1) else 1.0)
value = marked
"""
    recorded = _run(ranks, tmp_path, loop)
    assert 73 in recorded.values[1], "nobody looked"
    bad = [recorded.of("steps", rank).set_index("step")["nonfinite"].fillna(0) for rank in range(2)]
    assert bad[1][74] > 0
    assert bad[0][74] == 0
    assert (bad[1][:74] == 0).all()
    norms = recorded.of("steps", 0)["synced_norm"]
    assert norms[:74].notna().all()
    assert norms[74:].isna().all()


def test_a_stuck_one_shows_what_is_in_flight(ranks: Ranks, tmp_path: Path) -> None:
    loop = f"""
for number in range({_ALL}):
    train(pause=2.2 if (number, rank) == (74, 1) else 0.0)
value = marked, dist.group.WORLD._get_sequence_number_for_group()
"""
    recorded = _run(ranks, tmp_path, loop)
    marked, last = recorded.values[0]
    assert {73} <= set(marked)
    assert 74 not in marked, "it was seen as ever, once it was stuck"
    rows = recorded.of("collectives", 0)
    stuck = rows[(rows["step"] == 74) & (rows["phase"] == "backward")]
    buckets = len(set(rows["bucket"].dropna()))
    first = last - (_ALL - 74) * buckets
    assert set(stuck["seq"]) <= set(range(first + 1, first + 1 + buckets))
    assert len(stuck) > 0
    steps = recorded.of("steps", 0)
    assert steps["step"].tolist() == list(range(_ALL))
    assert steps.set_index("step")["exposed_ms"][74] > 1500


def test_a_program_that_does_something_else_is_seen_as_ever(ranks: Ranks, tmp_path: Path) -> None:
    """Accumulation, a step left out, a second optimizer, a collective of its own: each in the midst of steps by marks."""
    loop = """
for number in range(112):
    if number == 70:
        with model.no_sync():
            (model(torch.randn(4, 96)).square().mean() * 0.5).backward()
        (model(torch.randn(4, 96)).square().mean() * 0.5).backward()
        optimizer.step()
    elif number == 87:
        optimizer.zero_grad()
        model(torch.randn(4, 96)).square().mean().backward()
    elif number == 92:
        train()
        dist.all_reduce(torch.ones(3))
    else:
        train()
value = marked
"""
    recorded = _run(ranks, tmp_path, loop)
    assert {69, 71, 86, 91} & set(recorded.values[0])
    steps = recorded.of("steps", 0).set_index("step")
    assert steps.index.tolist() == list(range(112))
    assert steps["optimizer_skipped"].to_numpy().nonzero()[0].tolist() == [87]
    assert steps["micro_batches"].drop(70).eq(1).all()
    assert steps["micro_batches"][70] == 2
    own = recorded.of("collectives", 0)
    own = own[own["bucket"].isna() & (own["bytes"] == 12)]
    assert own["step"].tolist() == [93], "after an optimizer step comes the next step"


def test_a_model_made_later_is_found(ranks: Ranks, tmp_path: Path) -> None:
    loop = """
for _ in range(80):
    train()
model = DDP(torch.nn.Sequential(torch.nn.Linear(96, 40), torch.nn.Linear(40, 96)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(32):
    train()
value = marked
"""
    recorded = _run(ranks, tmp_path, loop)
    parameters = recorded.of("parameters", 0)
    assert parameters["shape"].tolist()[12:] == ["[40, 96]", "[40]", "[96, 40]", "[96]"]
    gradients = recorded.of("gradients", 0)
    assert set(gradients["parameter_id"][gradients["step"] == 96]) == {12, 13, 14, 15}
    steps = recorded.of("steps", 0)
    assert steps["step"].tolist() == list(range(112))
    assert steps["synced_norm"].notna().all()
