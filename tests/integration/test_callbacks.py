# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The callbacks in otherwise unchanged programs of the real Lightning and the real Ray Train, on two gloo workers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import dtscope_jupyter as dts

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.run import Run

LIGHTNING = """
import sys, torch
import {package} as L
from dtscope_jupyter import agent
from dtscope_jupyter.callbacks.lightning import DtscopeCallback

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 4)
    def training_step(self, batch, index):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(**options):
    examples = torch.utils.data.TensorDataset(torch.randn(64, 16))
    callback = DtscopeCallback("runs", name="lit", collect=["steps", "collectives", "gradients"])
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", log_every_n_steps=2, callbacks=[callback], **options, **quiet)
    trainer.fit(Net(), torch.utils.data.DataLoader(examples, batch_size=4))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Net(), torch.utils.data.DataLoader(examples, batch_size=4))
    assert agent.armed() is None or not agent.armed().recording

fit({options})
"""

RAY = """
import ray, ray.train, torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from dtscope_jupyter.callbacks.ray import DtscopeCallback

def train():
    model = prepare_model(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.ones(4, 16)).square().mean().backward()
        optimizer.step()

for patience in range(3):  # a busy machine exceeds the half minute that Ray gives itself
    try:
        ray.init(num_cpus=2, include_dashboard=False)
        break
    except Exception:
        ray.shutdown()
        if patience == 2:
            raise
config = RunConfig(storage_path={storage!r}, callbacks=[DtscopeCallback("runs", collect=["steps", "collectives", "gradients"])])
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
"""


def ran(program: str, folder: Path, **variables: str) -> str:
    script = folder / "program.py"
    script.write_text(program)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DTRAINSCOPE_")}
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env=clean | variables, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def the_run(folder: Path, steps: int) -> Run:
    (path,) = (folder / "runs").iterdir()
    run = dts.open(path)
    found = run.table("steps")
    assert sorted(zip(found["rank"], found["step"], strict=True)) == [(rank, step) for rank in range(2) for step in range(steps)]
    collectives: Any = run.table("collectives")
    assert all(set(collectives["step"][collectives["rank"] == rank].dropna()) >= set(range(steps)) for rank in range(2))
    gradients: Any = run.table("gradients")  # sampled, as the budget allows
    assert all(set(gradients["parameter_id"][gradients["rank"] == rank]) >= {0, 1} for rank in range(2))
    assert len(run.table("devices")) == 0
    return run


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_lightning_records_what_fit_does_twice_and_logs(tmp_path: Path, package: str) -> None:
    options = 'devices=2, strategy="ddp"'
    output = ran(LIGHTNING.replace("{package}", package).replace("fit({options})", f"fit({options})"), tmp_path)
    assert output.count("dtscope: records to ") == 1
    run = the_run(tmp_path, steps=16)
    assert run.name == "lit"
    notes = run.table("notes")
    scalars = notes[(notes["kind"] == "scalar") & (notes["name"] == "loss") & (notes["rank"] == 0)]
    assert len(scalars) == 8
    assert (scalars["value"] > 0).all()


def test_lightning_in_one_process_says_that_it_records_nothing(tmp_path: Path) -> None:
    output = ran(LIGHTNING.replace("{package}", "lightning").replace("fit({options})", "fit(devices=1)"), tmp_path)
    assert "dtscope: nothing is recorded: training runs in one process" in output
    assert not (tmp_path / "runs").exists()


def test_ray_train_records_its_workers(tmp_path: Path) -> None:
    program = RAY.replace("{storage!r}", repr(str(tmp_path / "ray")))
    ran(program, tmp_path, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    run = the_run(tmp_path, steps=8)
    assert run.name == "ray-train"
