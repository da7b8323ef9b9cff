# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import dtscope_jupyter as dts

if TYPE_CHECKING:
    from pathlib import Path


def train() -> None:
    """Real ranks whose collective raises now and then, which the program survives: gloo has no exclusive or of floats."""
    from contextlib import suppress

    import torch
    import torch.distributed as dist

    dist.init_process_group()
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        model(torch.randn(4, 8)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step in (5, 12):
            with suppress(RuntimeError, ValueError):
                dist.all_reduce(torch.ones(4), op=dist.ReduceOp.BXOR)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def test_errors_of_real_collectives_are_counted(tmp_path: Path) -> None:
    run = dts.profile(train, nprocs=2, directory=tmp_path / "run")
    notes = run.table("notes")
    assert sorted(notes.loc[notes["name"] == "collective_failed", "step"]) == [5, 5, 12, 12]
    (finding,) = [each for each in run.diagnose().findings if each.kind == "hang"]
    assert (finding.ranks, finding.steps, finding.evidence["errors"]) == ((0, 1), (5, 12), 4)
