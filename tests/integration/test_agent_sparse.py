# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients are observed beside dense ones, and training is what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

STEPS = 24
REBUILT = 1
"""The step in which DDP does not tell what lies in its buckets."""
MODEL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 8, sparse=True)
        self.head = torch.nn.Linear(8, 1) if HEAD else torch.nn.Identity()
    def forward(self, x):
        return self.head(self.words(x).mean(1))
net, local = Net(), []
def remember(number):
    return lambda gradient: local[-1].update({number: gradient.to_dense().norm().item()})
for number, parameter in enumerate(net.parameters()):
    parameter.register_hook(remember(number))
"""
DDP_MODEL = "model, finish = DDP(net), lambda: None\n"
HOOKED_MODEL = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
model, finish = DDP(net), lambda: None
model.register_comm_hook(None, default_hooks.allreduce_hook)
"""
BY_HAND = """
model = net
def finish():
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= W
"""
TRAIN = """
optimizer = torch.optim.SGD(net.parameters(), 0.1)
draw = torch.Generator().manual_seed(rank)
losses, norms = [], []
for _ in range(24):
    optimizer.zero_grad()
    local.append({})
    loss = model(torch.randint(0, 50, (16, 5), generator=draw)).square().mean()
    loss.backward()
    finish()
    norms.append([p.grad.to_dense().norm().item() for p in net.parameters()])
    optimizer.step()
    losses.append(loss.item())
value = losses, norms, local, [p.tolist() for p in net.parameters()]
"""


def _source(way: str, *, head: bool) -> str:
    return f"HEAD = {head}\n" + MODEL + way + TRAIN


@pytest.mark.parametrize("head", [True, False], ids=["with dense ones", "alone"])
@pytest.mark.parametrize("way", [DDP_MODEL, HOOKED_MODEL, BY_HAND], ids=["ddp", "ddp with a hook", "by hand"])
def test_sparse_gradients_are_observed(ranks: Ranks, tmp_path: Path, way: str, head: bool) -> None:  # noqa: FBT001
    without = agent_ranks.run(ranks, _source(way, head=head), folder=None)
    recorded = agent_ranks.run(ranks, _source(way, head=head), folder=tmp_path, budget=1.0)
    assert recorded.values == without.values
    notes = recorded.table("notes")
    assert set(notes["kind"]).isdisjoint({"collector", "warning"})
    for rank, (_, norms, local, _) in enumerate(recorded.values):
        gradients = recorded.of("gradients", rank)
        assert len(gradients) == STEPS * len(norms[0])
        for row in gradients.itertuples():
            assert row.synced_norm == pytest.approx(norms[row.step][row.parameter_id], rel=1e-4)
            if row.step != REBUILT or way == BY_HAND:
                assert row.local_norm == pytest.approx(local[row.step][row.parameter_id], rel=1e-4)
                assert row.nonfinite == 0
        flat = recorded.of("steps", rank).set_index("step")["synced_norm"]
        expected = {step: sum(norm * norm for norm in each) ** 0.5 for step, each in enumerate(norms)}
        assert dict(flat) == pytest.approx(expected, rel=1e-4)


def test_a_nan_in_a_sparse_gradient_is_counted(ranks: Ranks, tmp_path: Path) -> None:
    way = "net.words.weight.register_hook(lambda g: g * float('nan') if rank == 1 and len(losses) == 20 else g)\n" + DDP_MODEL
    recorded = agent_ranks.run(ranks, _source(way, head=True), folder=tmp_path, budget=1.0)
    gradients = recorded.table("gradients")
    first = gradients[gradients["nonfinite"] > 0].groupby("rank")["step"].min()
    found = gradients[(gradients["rank"] == 1) & (gradients["step"] == first[1]) & (gradients["nonfinite"] > 0)]
    assert first[1] == 20
    assert list(found["parameter_id"]) == [0]
    assert first[0] == 21


def test_a_rehearsed_nan_reaches_a_sparse_gradient(ranks: Ranks, tmp_path: Path) -> None:
    faults = [{"fault": "nan", "rank": 1, "step": 12}]
    recorded = agent_ranks.run(ranks, _source(DDP_MODEL, head=False), folder=tmp_path, budget=1.0, faults=faults)
    gradients = recorded.of("gradients", 1)
    assert gradients[gradients["nonfinite"] > 0]["step"].min() == 12
    assert "collector" not in set(recorded.table("notes")["kind"])
