# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Panels asked for by name in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

import dtscope_jupyter as dts
from tests.browser import lab

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


def test_waits_and_bandwidth_begin_with_their_own_metric(page: Page, jupyterlab: lab.Server, captures: Path) -> None:
    opened = f"%load_ext dtscope_jupyter\n%dtscope open {captures / 'h200' / 'ddp_one_bucket'}"
    path = jupyterlab.notebook("show.ipynb", opened, "%dtscope show waits", "%dtscope show bandwidth")
    lab.open_notebook(page, jupyterlab, path)
    for place in range(3):
        lab.run_cell(page, place)
        lab.wait_cell(page, place)
    titles = page.locator(".dts [data-panel=map] h3")
    expect(titles).to_have_text(["Wait", "Bus bandwidth"])
    expect(page.locator(".dts [data-panel=map] select").first).to_have_value("wait")


QUICK_END = """%%dtscope profile -n 2 --dir {folder}
import time, torch, torch.distributed as dist
dist.init_process_group()
parameter = torch.nn.Parameter(torch.ones(64))
optimizer = torch.optim.SGD([parameter], 0.01)
for step in range(120):
    parameter.sum().backward()
    if step < 12:
        time.sleep(0.25 * dist.get_rank())
    dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_means_at_the_end_are_those_of_all_steps(page: Page, jupyterlab: lab.Server, tmp_path: Path) -> None:
    page.add_init_script(lab.KEEP_TEXTS)
    path = jupyterlab.notebook("means.ipynb", "%load_ext dtscope_jupyter", QUICK_END.format(folder=tmp_path / "run"))
    lab.open_notebook(page, jupyterlab, path)
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    lab.wait_cell(page, 1)
    steps = dts.open(tmp_path / "run").table("steps")
    mean = float(steps.loc[steps["rank"] == 0, "exposed_ms"].mean())
    near = "mean => window.drawn.some(text => /^[\\d.]+$/.test(text) && Math.abs(+text - mean) < 0.01 * mean)"
    page.wait_for_function(near, arg=mean)
