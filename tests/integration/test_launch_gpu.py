# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks on GPUs: CUDA starts in forks of the warm process, never in the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import environment

if TYPE_CHECKING:
    from ranks import Ranks

GPUS = environment.gpus()
NCCL = """
import os, torch, torch.distributed as dist
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
"""

pytestmark = pytest.mark.skipif(GPUS < 2, reason=f"{GPUS} GPUs here; 2 are needed")


def test_nccl_works_and_values_come_back_on_the_cpu(ranks: Ranks) -> None:
    source = (
        NCCL
        + "x = torch.ones(3, device=device) * (1 + dist.get_rank())\ndist.all_reduce(x)\ny = x.device.type, x\nprint(dist.get_backend())"
    )
    job = ranks.run(source, pulled={"y": True})
    assert job.failure is None, job.failure
    for kind, value in job.results()["y"]:
        assert kind == "cuda"
        assert value.device.type == "cpu"
        assert value.tolist() == [3.0] * 3
    assert not any("/dev/nvidia" in path for path in map(os.path.realpath, Path("/proc/self/fd").iterdir()))


def test_ddp_trains_and_an_error_ends_the_peers(ranks: Ranks) -> None:
    source = NCCL + (
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(device))\n"
        "for _ in range(3):\n    model(torch.ones(2, 8, device=device)).sum().backward()\n"
        "if dist.get_rank() == 1:\n    raise ValueError('boom')\n"
        "dist.barrier()\ntorch.cuda.synchronize()"
    )
    job = ranks.run(source)
    assert job.failure is not None
    assert (job.failure.rank, job.failure.reason) == (1, "ValueError: boom")


def test_gloo_that_was_asked_for_is_taken_for_gpus_too(ranks: Ranks) -> None:
    source = NCCL + "x = torch.ones(1, device=device)\ndist.all_reduce(x)\nz = dist.group.WORLD._get_backend(device).name(), x.item()"
    assert ranks.value(source, "z", backend="gloo") == [("gloo", 2.0)] * 2


def test_more_ranks_than_gpus_is_one_line() -> None:
    with pytest.raises(DtscopeError, match=f"-n {GPUS + 1} with nccl needs {GPUS + 1} GPUs and this host shows {GPUS} GPUs"):
        environment.check_world_size(GPUS + 1, "nccl")


def test_hidden_gpus_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert environment.gpus() == 1
