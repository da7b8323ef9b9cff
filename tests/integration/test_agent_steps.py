# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps as real programs make them, one agent after the other in the same ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks
import pyarrow as pa
import pytest

from dtscope_jupyter import schema
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from ranks import Ranks

PROGRAMS = """
import functools
value = pathlib.Path(FOLDER)
def scenario(name):
    def run(program):
        folder = value / name / f"rank-{rank:04d}"
        folder.mkdir(mode=0o700, parents=True)
        armed = agent.arm(agent.Config(folder=folder, rank=rank, world_size=W, local_rank=rank))
        program()
        armed.finish()
        assert agent.armed() is None
    return run
def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
x = torch.randn(16, 8)

@scenario("accumulation")
def _():
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for part in range(4):
            if part < 3:
                with model.no_sync():
                    model(x).sum().backward()
            else:
                model(x).sum().backward()
        optimizer.step()

@scenario("gan")
def _():
    one, other = DDP(net()), DDP(torch.nn.Linear(1, 1))
    optimizers = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.Adam(other.parameters())
    for _ in range(4):
        optimizers[1].zero_grad()
        other(one(x).detach()).sum().backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        other.module(one(x)).sum().backward()
        optimizers[0].step()

@scenario("scaler")
def _():
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number in range(4):
        optimizer.zero_grad()
        loss = model(x).sum() * (float("inf") if number == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

@scenario("hand")
def _():
    model = DDP(net())
    for _ in range(5):
        model.zero_grad()
        model(x).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad

@scenario("reduced")
def _():
    model = net()
    for number in range(8):
        model(x).sum().backward()
        if rank == 1 and number == 4:
            time.sleep(1.0)
        for p in model.parameters():
            dist.all_reduce(p.grad)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None

@scenario("zero")
def _():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = DDP(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

@scenario("subclass")
def _():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)
    model = DDP(net())
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    optimizer = Mine(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

@scenario("closure")
def _():
    model = DDP(net())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss
    for _ in range(3):
        optimizer.step(closure)

@scenario("raises")
def _():
    class Broken(torch.optim.SGD):
        broken = True
        def step(self, closure=None):
            if self.broken:
                self.broken = False
                raise RuntimeError("once")
            return super().step(closure)
    model = DDP(net())
    optimizer = Broken(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        try:
            optimizer.step()
        except RuntimeError:
            pass

@scenario("collectives")
def _():
    for _ in range(6):
        dist.all_reduce(torch.ones(4))
        dist.barrier()

@scenario("partial")
def _():
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    model(x).sum().backward()

@scenario("sharded")
def _():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (W,))
    model = net()
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
value = str(value)
"""


@pytest.fixture(scope="module")
def folder(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps")
    agent_ranks.run(ranks, PROGRAMS.replace("FOLDER", repr(str(path))), 2, folder=None)
    return path


def _steps(folder: Path, name: str, rank: int = 1) -> Any:
    return _table(folder, name, "steps", rank)


def _table(folder: Path, name: str, table: str, rank: int) -> Any:
    batches = BlockReader(folder / name / f"rank-{rank:04d}", table).batches()
    return pa.Table.from_batches(batches, schema.TABLES[table].arrow).to_pandas()


@pytest.mark.parametrize(
    ("name", "micro_batches", "skipped"),
    [
        ("accumulation", [4, 4, 4], []),
        ("gan", [2, 2, 2, 2], []),
        ("scaler", [1, 1, 1, 1], [2]),
        ("hand", [1, 1, 1, 1, 1], []),
        ("reduced", [1] * 8, []),
        ("sharded", [1, 1, 1], []),
        ("zero", [1, 1, 1], []),
        ("subclass", [0, 1, 1, 1], []),
        ("closure", [3, 3, 3], []),
        ("raises", [1, 1, 1], [0]),
        ("collectives", [0] * 6, []),
        ("partial", [1, 1], []),
    ],
)
def test_steps(folder: Path, name: str, micro_batches: list[int], skipped: list[int]) -> None:
    for rank in range(2):
        steps = _steps(folder, name, rank)
        assert steps["step"].tolist() == list(range(len(micro_batches)))
        assert steps["micro_batches"].tolist() == micro_batches
        assert steps["step"][steps["optimizer_skipped"]].tolist() == skipped


@pytest.mark.parametrize(("name", "operation"), [("reduced", "all_reduce"), ("sharded", "all_gather")])
def test_collectives_and_waits_lie_in_the_step_they_say(folder: Path, name: str, operation: str) -> None:
    for rank in range(2):
        steps = _steps(folder, name, rank).set_index("step")
        calls = _table(folder, name, "collectives", rank).query(f"operation == {operation!r} and state == 'completed'")
        waits = _table(folder, name, "host", rank).query(f"kind == 'collective_wait' and detail == {operation!r}")
        for events, begin in ((calls, "enqueue_ns"), (waits, "start_ns")):
            assert set(events["step"]) == set(steps.index)
            its = steps.loc[events["step"]]
            assert (its["start_ns"].to_numpy() <= events[begin].to_numpy()).all()
            assert (events["end_ns"].to_numpy() <= its["end_ns"].to_numpy()).all()


def test_a_pause_before_gradients_are_reduced_is_in_its_step(folder: Path) -> None:
    for rank in range(2):
        steps = _steps(folder, "reduced", rank)
        length = steps["end_ns"] - steps["start_ns"]
        assert length[1:].idxmax() == 4


def test_accumulated_gradients_are_reduced_once_a_step(folder: Path) -> None:
    batches = BlockReader(folder / "accumulation" / "rank-0000", "collectives").batches()
    rows = pa.Table.from_batches(batches, schema.COLLECTIVES.arrow).to_pandas().dropna(subset="bucket")
    assert rows["step"].tolist() == [0, 1, 2]


def test_two_optimizers_have_their_gradients_on_the_step(folder: Path) -> None:
    batches = BlockReader(folder / "gan" / "rank-0000", "gradients").batches()
    rows = pa.Table.from_batches(batches, schema.GRADIENTS.arrow).to_pandas()
    assert not rows.duplicated(["step", "parameter_id"]).any()
    assert rows.groupby("step").size().tolist() == [6, 6, 6, 6]
