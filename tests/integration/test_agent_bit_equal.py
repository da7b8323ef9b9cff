# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Losses and parameters are those of a run without us, bit for bit."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import agent_ranks
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

MODEL = """
layers = torch.nn.Linear(24, 40), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(40, 40), torch.nn.Linear(40, 3)
model = torch.nn.Sequential(*layers)
data = torch.randn(8, 16, 24, generator=torch.Generator().manual_seed(rank))
"""
TRAIN = """
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for batch in data:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
RESULT = """
value = losses, [p.detach().flatten().tolist() for p in model.parameters()], torch.random.get_rng_state().sum().item()
"""
SHARDED_RESULT = """
value = losses, [p.to_local().detach().flatten().tolist() for p in model.parameters()]
"""
OWN_HOOK = """
def own(state, bucket):
    buffer = bucket.buffer().div_(state)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda future: future.value()[0])
"""


def _equal(ranks: Ranks, tmp_path: Path, source: str, world_size: int) -> agent_ranks.Recorded:
    without = agent_ranks.run(ranks, source, world_size, folder=None)
    recorded = agent_ranks.run(ranks, source, world_size, folder=tmp_path)
    assert recorded.values == without.values
    assert len(without.values[0][0]) > 2
    return recorded


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ddp(ranks: Ranks, tmp_path: Path, world_size: int, view: bool) -> None:  # noqa: FBT001
    source = MODEL + f"model = DDP(model, bucket_cap_mb=0.005, gradient_as_bucket_view={view})\n" + TRAIN + RESULT
    recorded = _equal(ranks, tmp_path, source, world_size)
    buckets = recorded.table("collectives").dropna(subset="bucket")
    assert set(buckets["rank"]) == set(range(world_size))
    assert buckets["bucket"].nunique() > 1


def test_users_comm_hook_before_ours(ranks: Ranks, tmp_path: Path) -> None:
    source = MODEL + OWN_HOOK + "model = DDP(model)\nmodel.register_comm_hook(W, own)\n" + TRAIN + RESULT
    buckets = _equal(ranks, tmp_path, source, 3).table("collectives").dropna(subset="bucket")
    assert len(buckets) == 3 * 8


def test_users_comm_hook_after_ours(ranks: Ranks, tmp_path: Path) -> None:
    first = "for batch in data[:2]:\n    model(batch).sum().backward()\n    model.zero_grad()\n"
    source = MODEL + OWN_HOOK + "model = DDP(model)\n" + first + "model.register_comm_hook(W, own)\n" + TRAIN + RESULT
    buckets = _equal(ranks, tmp_path, source, 3).table("collectives").dropna(subset="bucket")
    assert len(buckets) == 3 * (2 + 8)


def test_builtin_hook_after_ours(ranks: Ranks, tmp_path: Path) -> None:
    first = "for batch in data[:2]:\n    model(batch).sum().backward()\n    model.zero_grad()\n"
    builtin = "model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)\n"
    buckets = _equal(ranks, tmp_path, MODEL + "model = DDP(model)\n" + first + builtin + TRAIN + RESULT, 2).table("collectives")
    assert (buckets.dropna(subset="bucket")["dtype"] == "float16").sum() == 2 * 8


def test_fsdp2(ranks: Ranks, tmp_path: Path) -> None:
    shard = """
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        if sum(p.numel() for p in layer.parameters()):
            fully_shard(layer)
    fully_shard(model)
    """
    recorded = _equal(ranks, tmp_path, MODEL + textwrap.dedent(shard) + TRAIN + SHARDED_RESULT, 2)
    operations = set(recorded.table("collectives")["operation"])
    assert {"all_gather", "reduce_scatter"} <= operations


def test_a_compiled_model(ranks: Ranks, tmp_path: Path) -> None:
    """Dynamo is about while DDP's C++ part calls our process group."""
    source = MODEL + "model = torch.compile(DDP(model), backend='eager')\n" + TRAIN + RESULT
    assert not _equal(ranks, tmp_path, source, 2).table("collectives").dropna(subset="bucket").empty


def test_hand_written_all_reduce(ranks: Ranks, tmp_path: Path) -> None:
    average = "    loss.backward()\n    for p in model.parameters():\n        dist.all_reduce(p.grad)\n        p.grad /= W\n"
    source = MODEL + TRAIN.replace("    loss.backward()\n", average) + RESULT
    recorded = _equal(ranks, tmp_path, source, 3)
    assert len(recorded.of("collectives", 1)) == 6 * 8


def test_torch_refuses_a_second_hook_as_ever(ranks: Ranks, tmp_path: Path) -> None:
    second = """
    value = []
    model.register_comm_hook(W, own)
    try:
        model.register_comm_hook(W, own)
    except RuntimeError as error:
        value = str(error).splitlines()[0]
    """
    source = MODEL + OWN_HOOK + "model = DDP(model)\n" + textwrap.dedent(second)
    without = agent_ranks.run(ranks, source, 2, folder=None)
    assert agent_ranks.run(ranks, source, 2, folder=tmp_path).values == without.values
    assert "only be called once" in without.values[0]


def test_torch_refuses_bf16_compression_on_gloo_as_ever(ranks: Ranks, tmp_path: Path) -> None:
    refused = """
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    model(data[0]).sum().backward()
    try:
        model.register_comm_hook(None, bf16_compress_hook)
        value = "taken"
    except TypeError as error:
        value = str(error)
    """
    source = MODEL + "model = DDP(model)\n" + textwrap.dedent(refused)
    assert "BF16" in agent_ranks.run(ranks, source, 2, folder=tmp_path).values[0]
