# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that change what they train on the way, where one step in 16 is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

_PROGRAM = """
network = torch.nn.Sequential(*[torch.nn.Linear(48, 48) for _ in range(4)])
first, last = network[0].requires_grad_, network[3].requires_grad_
def wrap(**options):
    return DDP(network, bucket_cap_mb=0.02, **options)
def trained():
    return [p for p in network.parameters() if p.requires_grad]
norms = []
def train(backwards=1):
    optimizer.zero_grad()
    for _ in range(backwards - 1):
        with model.no_sync():
            model(torch.randn(8, 48)).square().mean().backward()
    model(torch.randn(8, 48)).square().mean().backward()
    norms.append(torch.stack([p.grad.double().norm() for p in network.parameters() if p.grad is not None]).norm().item())
    optimizer.step()
"""


def _run(ranks: Ranks, folder: Path, loop: str) -> agent_ranks.Recorded:
    recorded = agent_ranks.run(ranks, _PROGRAM + loop + "value = norms", 2, folder=folder, budget=0.0001)
    for rank, norms in enumerate(recorded.values):
        assert not (recorded.of("notes", rank)["kind"] == "collector").any(), "a collector is in trouble"
        steps = recorded.of("steps", rank)
        assert steps["step"].tolist() == list(range(len(norms)))
        assert steps["synced_norm"].to_numpy() == pytest.approx(norms, rel=1e-5)
    return recorded


@pytest.mark.parametrize("early", [True, False])
def test_parameters_that_are_frozen_for_a_while(ranks: Ranks, tmp_path: Path, early: bool) -> None:  # noqa: FBT001
    """Autograd refuses a hook on these; before the first quiet backward, and after it."""
    loop = f"""
model = wrap(find_unused_parameters=True)
optimizer = torch.optim.SGD(trained(), lr=1e-3)
for number in range(112):
    first(not {4 if early else 70} <= number < 90)
    last(not {4 if early else 70} <= number < 90)
    train(2 if number == 85 else 1)
"""
    recorded = _run(ranks, tmp_path, loop)
    gradients, steps = recorded.of("gradients", 0), recorded.of("steps", 0)
    assert steps["step"][steps["micro_batches"] == 2].tolist() == [85], "what is frozen has no gradient, which is no sign of a reset"
    ready = gradients[gradients["ready_ns"].notna()]
    assert set(ready["parameter_id"][ready["step"] == 80]) == set(range(2, 6))
    assert set(ready["parameter_id"][ready["step"] == 96]) == set(range(8))


@pytest.mark.parametrize(
    "anew", ["optimizer.add_param_group({'params': list(network[3].parameters())})", "optimizer = torch.optim.SGD(trained(), lr=1e-3)"]
)
def test_a_model_that_is_wrapped_anew(ranks: Ranks, tmp_path: Path, anew: str) -> None:
    """It trains more from then on; the optimizer is known already, or its first parameters are."""
    loop = f"""
last(False)
model = wrap()
optimizer = torch.optim.SGD(trained(), lr=1e-3)
for _ in range(70):
    train()
last(True)
model = wrap()
{anew}
for _ in range(42):
    train()
"""
    recorded = _run(ranks, tmp_path, loop)
    assert recorded.of("parameters", 0)["parameter_id"].tolist() == list(range(8))
    gradients = recorded.of("gradients", 0)
    assert set(gradients["parameter_id"][gradients["step"] == 96]) == set(range(8))


def test_a_closer_look_that_is_called_for_in_the_midst_of_a_backward(ranks: Ranks, tmp_path: Path) -> None:
    """The writing thread may find something not finite at any time; a backward that went by unseen keeps its norm."""
    loop = """
model = wrap()
optimizer = torch.optim.SGD(trained(), lr=1e-3)
handle = network[2].weight.register_hook(lambda _: armed.gradients._be_alert() if len(norms) in (55, 75, 106) else None)
for _ in range(112):
    train()
"""
    _run(ranks, tmp_path, loop)


def test_training_that_moves_between_threads(ranks: Ranks, tmp_path: Path) -> None:
    """A thread's CPU time says nothing of another's, which may have the number of one that is gone."""
    loop = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
model = wrap()
optimizer = torch.optim.SGD(trained(), lr=1e-3)
for count in (67, 23):
    thread = Thread(target=lambda: [train() for _ in range(count)])
    thread.start()
    thread.join()
step = torch.optim.SGD.step
with ThreadPoolExecutor(1) as other:
    other.submit(lambda: [torch.randn(300, 300) @ torch.randn(300, 300) for _ in range(40)]).result()
    optimizer.step = lambda: other.submit(lambda: step(optimizer)).result() if len(norms) % 3 else step(optimizer)
    for _ in range(32):
        train()
"""
    steps = _run(ranks, tmp_path, loop).of("steps", 0)
    used, length = steps["thread_cpu_ms"], (steps["end_ns"] - steps["start_ns"]) / 1e6
    assert used[:90].notna().mean() > 0.9
    assert ((used > 0) & (used < length + 1) | used.isna()).all()


def test_recording_that_stops_as_a_model_is_found_and_within_a_backward(ranks: Ranks, tmp_path: Path) -> None:
    """The model is numbered once recording goes on, and the buckets of the backward cut off count in no later step."""
    loop = """
model = wrap()
optimizer = torch.optim.SGD(trained(), lr=1e-3)
stops = [lambda: armed.stop(), lambda: None, lambda: armed.stop()]
armed.discovery.on_ddp.append(lambda _: stops.pop()())
train()
handle = network[0].weight.register_hook(lambda _: stops.pop()())
for _ in stops[:]:
    armed.start()
    train()
handle.remove()
armed.start()
del norms[2], norms[0]
for _ in range(12):
    train()
"""
    recorded = _run(ranks, tmp_path, loop)
    assert recorded.of("parameters", 0)["parameter_id"].tolist() == list(range(8))
    gradients = recorded.of("gradients", 0)
    assert gradients.groupby("step")["synced_norm"].count().tolist() == [8] * 13


def test_a_model_that_is_kept_after_its_training(ranks: Ranks, tmp_path: Path) -> None:
    """The gradients of its last step are still there; an encoder that its optimizer has only a part of counts whole."""
    loop = """
model = wrap()
optimizer = torch.optim.SGD(trained(), lr=1e-3)
for _ in range(20):
    train()
kept = model, network
network = torch.nn.Sequential(*[torch.nn.Linear(48, 48) for _ in range(3)])
model = wrap()
optimizer = torch.optim.SGD(network[0].parameters(), lr=1e-3)
for _ in range(92):
    network.zero_grad()
    train()
"""
    gradients = _run(ranks, tmp_path, loop).of("gradients", 0)
    assert set(gradients["parameter_id"][gradients["step"] > 20]) == set(range(8, 14))
