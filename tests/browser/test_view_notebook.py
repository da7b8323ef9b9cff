# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The live panels in a real Notebook 7: while the cell runs, over a reload, and when the kernel is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser import lab
from tests.browser.test_view_live import FOREVER, LOAD, TRAIN, check_lost, choose_first, end, reloaded

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
    return lab.wait_live(page)


def test_live_while_the_cell_blocks_then_a_picture(page: Page, running: Locator, stop: Path) -> None:
    expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    lab.wait_step(running, lab.shown_step(running) + 21)
    lab.wait_colours(running.locator("[data-panel=map] canvas"))
    canvas = choose_first(running)
    expect(running.locator("[data-panel=timeline] h3")).to_have_text("Step 0")
    expect(running.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 0, rank 0")
    canvas.press("ArrowDown")
    expect(running.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 0, rank 1")
    end(page, stop)
    expect(running.locator(".dts-state")).to_have_text("finished")
    expect(page.locator(".jp-CodeCell img").first).to_be_visible()


def test_a_page_reloaded_during_the_run_shows_all_of_it_after(page: Page, running: Locator, stop: Path) -> None:
    reloaded(page, running, stop)


def test_a_lost_kernel_is_said(page: Page, running: Locator, stop: Path) -> None:
    end(page, stop)
    check_lost(page, running)
