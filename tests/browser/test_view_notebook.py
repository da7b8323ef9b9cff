# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The live panels in a real Notebook 7: while the cell runs, over a reload, and when the kernel is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser import lab
from tests.browser.test_view_live import FOREVER, LOAD, TRAIN, colours, end, shown_step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Server]:
    with lab.server(tmp_path_factory.mktemp("notebook"), "notebook") as server:
        yield server


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    return tmp_path / "stop"


@pytest.fixture
def running(page: Page, notebook7: lab.Server, tmp_path: Path, stop: Path) -> Locator:
    cell = TRAIN.format(folder=tmp_path / "run", steps=FOREVER, stop=stop)
    lab.open_notebook(page, notebook7, notebook7.notebook(f"{tmp_path.name}.ipynb", LOAD, cell), classic=True)
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    panels = page.locator(".dts").first
    expect(panels.locator(".dts-status")).to_contain_text(re.compile(r"step \d+ · [\d.]+ steps/s"), timeout=60_000)
    return panels


def test_live_while_the_cell_blocks_then_a_picture(page: Page, running: Locator, stop: Path) -> None:
    expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    before = shown_step(running)
    page.wait_for_function("before => +document.querySelector('.dts-status').innerText.match(/step (\\d+)/)[1] > before + 20", arg=before)
    assert colours(running.locator("[data-panel=map] canvas")) > 5
    canvas = running.locator("[data-panel=map] canvas")
    canvas.click(position={"x": 84 + 3, "y": 40})
    expect(running.locator("[data-panel=timeline] h3")).to_have_text("Step 0")
    expect(running.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 0, rank 0")
    canvas.press("ArrowDown")
    expect(running.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 0, rank 1")
    end(page, stop)
    expect(running.locator(".dts-state")).to_have_text("finished")
    expect(page.locator(".jp-CodeCell img").first).to_be_visible()


def test_a_page_reloaded_during_the_run_shows_all_of_it_after(page: Page, running: Locator, stop: Path) -> None:
    page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
    reached = shown_step(running)
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    stop.touch()
    panels = page.locator(".dts").first
    expect(panels.locator(".dts-state")).to_have_text("finished", timeout=60_000)
    assert shown_step(panels) >= reached


def test_a_lost_kernel_is_said(page: Page, running: Locator, stop: Path) -> None:
    end(page, stop)
    page.evaluate("() => void jupyterapp.commands.execute('notebook:restart-kernel')")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    expect(running.locator(".dts-state")).to_contain_text("the kernel is gone")
    assert colours(running.locator("[data-panel=map] canvas")) > 5
