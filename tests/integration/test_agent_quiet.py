# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What the steps of a device rest on in which nobody looks at DDP's buckets: that all stays in C++, and its times are right."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import agent_ranks

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

MODEL = """
from dtscope_jupyter.agent import buckets, seen_group
model = DDP(torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6))), bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(12, 8, 64, generator=torch.Generator().manual_seed(rank))
def train(batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
for batch in data[:6]:
    train(batch)
"""


def test_a_quiet_backward_reduces_as_ever_and_only_its_last_bucket_is_seen(ranks: Ranks, tmp_path: Path) -> None:
    source = MODEL + """
seen, = buckets._registry.seen.values()
number = dist.group.WORLD._get_sequence_number_for_group
owner, works = buckets._registry.owner, []
waits = owner.collectives.final_wait
waits._on, waits.bucket = False, works.append
begins, told = seen.backward_begins, []
seen._on_host = False
def quiet(owner):
    owner.quiet = True
    begins(owner)
seen.backward_begins = quiet
for batch in data[6:]:
    before = number()
    train(batch)
    told.append((number() - before, len(works), seen._placed))
    works.clear()
value = told, len(seen._layout.kinds), [p.detach().sum().item() for p in model.parameters()]
"""
    recorded = agent_ranks.run(ranks, source, 2, folder=tmp_path)
    (told, count, first), (_, _, second) = recorded.values
    assert count > 2
    assert [tuple(row) for row in told] == [(count, 1, True)] * 6
    assert first == second, "all gradients were averaged"
    rows = recorded.of("collectives", 0).dropna(subset="bucket")
    assert rows["step"].max() == 5, "no bucket of a quiet step has a row"


def test_a_model_that_nobody_watched_from_the_start_is_left_alone_again(ranks: Ranks, tmp_path: Path) -> None:
    source = """
armed_later, armed = armed, None
armed_later.stop()
""" + MODEL + """
armed = armed_later
armed.start()
for batch in data[6:9]:
    train(batch)
seen, = buckets._registry.seen.values()
watched = seen._placed
armed.stop()
value = watched, seen._placed, bool(model._comm_hooks), [p.detach().sum().item() for p in model.parameters()]
"""
    recorded = agent_ranks.run(ranks, source, 2, folder=tmp_path)
    (watched, left, hooks, first), (_, _, _, second) = recorded.values
    assert (watched, left, hooks) == (True, False, False)
    assert first == second, "all gradients were averaged"
    assert len(recorded.of("collectives", 0).dropna(subset="bucket")) > 2


def test_a_reducer_tells_when_gradients_were_ready(ranks: Ranks, tmp_path: Path) -> None:
    source = MODEL + """
from dtscope_jupyter.agent.ready_times import ReadyTimes
parameters = list(model.module.parameters())
stamps = {}
def stamp(p): stamps[id(p)] = time.monotonic_ns()
for p in parameters: p.register_post_accumulate_grad_hook(stamp)
loss = model(data[0]).square().mean()
time.sleep(0.05)
loss.backward()
ready = [stamps[id(parameters[0])]] + [0] * (len(parameters) - 1)
times = ReadyTimes(model, parameters)
times.fill(ready, {id(p): number for number, p in enumerate(parameters)})
hooks = [stamps[id(p)] for p in parameters]
value = ready, hooks, len(times.told), ReadyTimes.of(model) is None
"""
    for ready, hooks, told, on_cpu in agent_ranks.run(ranks, source, 2, folder=tmp_path).values:
        assert told == len(hooks) - 1 == 11
        assert on_cpu, "on a CPU hooks tell"
        assert sorted(range(12), key=ready.__getitem__) == sorted(range(12), key=hooks.__getitem__)
        assert median(abs(a - b) for a, b in zip(ready, hooks, strict=True)) < max(hooks) - min(hooks)


def test_a_rank_whose_forward_went_bad_is_told_in_a_step_in_which_nobody_looked(ranks: Ranks, tmp_path: Path) -> None:
    source = MODEL + """
from dtscope_jupyter.agent.cost import Cost
owner = buckets._registry.owner
def train(batch, spoil):
    owner.collectives.counting = True
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    (loss * float("nan") if spoil else loss).backward()
    optimizer.step()
owner.quiet_if.clear()
for number, batch in enumerate(data[6:], 6):
    train(batch, number == 9 and rank == 1)
value = None
"""
    recorded = agent_ranks.run(ranks, source, 2, folder=tmp_path)
    bad = [recorded.of("steps", rank).set_index("step")["nonfinite"].fillna(0) for rank in range(2)]
    assert bad[0][9] == 0
    assert bad[1][9] > 0
    assert (bad[1][:9] == 0).all()
    rows = recorded.of("collectives", 0).dropna(subset="bucket")
    assert 9 not in set(rows["step"]), "no bucket of that step was seen"
