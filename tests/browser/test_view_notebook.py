# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The live panels in a real Notebook 7."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser import lab

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from playwright.sync_api import Page

CELL = """%%dtscope profile -n 2 --dir {folder}
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(40):
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_live_in_notebook_7(page: Page, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with lab.server(tmp_path_factory.mktemp("notebook"), "notebook") as server:
        path = server.notebook("seven.ipynb", "%load_ext dtscope_jupyter", CELL.format(folder=tmp_path / "run"))
        lab.open_notebook(page, server, path, classic=True)
        lab.run_cell(page, 0)
        lab.wait_cell(page, 0)
        lab.run_cell(page, 1)
        panels = page.locator(".dts")
        expect(panels.locator(".dts-state")).to_have_text("finished", timeout=60_000)
        expect(panels.locator(".dts-status")).to_contain_text(re.compile("step 39"))
        expect(panels.locator("[data-panel=collectives] tbody tr").first).to_contain_text("all_reduce")
        lab.wait_cell(page, 1)
        expect(page.locator(".jp-CodeCell img").first).to_be_visible()
