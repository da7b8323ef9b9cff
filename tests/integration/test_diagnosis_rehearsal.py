# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dtscope_jupyter as dts
from dtscope_jupyter import session

if TYPE_CHECKING:
    from pathlib import Path


def train() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(14):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


@pytest.mark.parametrize(("fault", "kind", "cause"), [
    ({"fault": "host_stall", "rank": 1, "ms": 200, "step": 3}, "straggler", "host_stall"),
    ({"fault": "nan", "rank": 0, "step": 6}, "nonfinite", "gradient"),
    ({"fault": "copy", "rank": 1, "ms": 150, "step": 3}, "implicit_copy", "non_contiguous"),
])  # fmt: skip
def test_a_rehearsed_fault_is_named(tmp_path: Path, fault: dict[str, Any], kind: str, cause: str) -> None:
    session.current().faults = [fault]
    run = dts.profile(train, nprocs=2, directory=tmp_path / "run")
    dts.expect(run).finding(kind, cause=cause, rank=fault["rank"])
