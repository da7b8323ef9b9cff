# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A program that closes every descriptor before it trains is recorded all the same, and its own files hold what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agent_ranks

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks


def test_closed_descriptors_cost_no_row(ranks: Ranks, tmp_path: Path) -> None:
    recorded, own = tmp_path / "run", tmp_path / "own"
    own.mkdir()
    source = f"""
        dist.destroy_process_group()
        time.sleep(0.3)
        os.closerange(3, 1000)
        files = [open(f"{own}/{{rank}}-{{number}}", "w") for number in range(40)]
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number in range(12):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            time.sleep(0.05)
        for file in files:
            file.write("theirs")
            file.close()
        value = rank
        dist.init_process_group("gloo")
    """
    run = agent_ranks.run(ranks, source, folder=recorded)
    assert run.values == [0, 1]
    for rank in range(2):
        assert len(run.of("steps", rank)) == 12
    assert "collector" not in set(run.table("notes")["kind"])
    assert {path.read_text() for path in own.iterdir()} == {"theirs"}
