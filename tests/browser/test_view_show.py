# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Panels asked for by name in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

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
