# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Panels of runs whose ranks record the collectives of a sample of steps only, and of a live run that a rank's error ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import dtscope_jupyter as dts
from tests.browser import lab
from tests.browser.made_run import LATE, long_run
from tests.browser.test_view_live import FOREVER, LOAD, TRAIN

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_run(tmp_path_factory.mktemp("sampled") / "run", 4, 400, sampled=16)


@pytest.fixture
def panels(page: Page, run: Path, tmp_path: Path) -> Locator:
    return lab.open_file(page, dts.open(run).save_html(tmp_path / "run.html"))


def choose(panels: Locator, step: int) -> None:
    number = panels.get_by_label("step to show")
    number.fill(str(step))
    number.press("Enter")
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text(f"Step {step}")


def test_the_newest_step_that_all_ranks_recorded_is_shown_first(panels: Locator) -> None:
    expect(panels.locator(".dts-status")).to_contain_text("step 399")
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 384")
    expect(panels.locator("[data-panel=timeline] header > .dts-sub")).to_contain_text("newest recorded")
    expect(panels.locator("[data-panel=collectives] tbody tr")).to_have_count(3)
    expect(panels.locator("[data-panel=instead] h3")).to_have_text(f"What rank {LATE} did instead")


def test_a_finding_leads_to_a_step_that_was_recorded(panels: Locator) -> None:
    finding = panels.locator(".dts-finding", has_text=f"Rank {LATE} is late").first
    finding.get_by_role("button").click()
    title = panels.locator("[data-panel=timeline] h3")
    expect(title).not_to_have_text("Step 384")
    assert int(title.inner_text().removeprefix("Step ")) % 16 == 0
    expect(panels.locator("[data-panel=collectives] tbody tr")).to_have_count(3)


def test_a_step_that_was_not_recorded_says_so_and_leads_to_one_that_was(panels: Locator) -> None:
    choose(panels, 399)
    note = panels.locator(".dts-unrecorded")
    expect(note).to_contain_text("The collectives of step 399 were not recorded")
    expect(panels.locator("[data-panel=collectives]")).to_be_hidden()
    note.get_by_role("button", name="step 384 was recorded").click()
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 384")
    expect(panels.locator("[data-panel=collectives] tbody tr")).to_have_count(3)


def test_of_a_step_that_one_rank_recorded_nobody_is_called_on_time(panels: Locator) -> None:
    choose(panels, 392)
    expect(panels.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 392, rank 0")
    said = panels.locator("[data-panel=collectives] header > .dts-sub")
    expect(said).to_have_text("recorded by 1 rank of 4")
    expect(panels.locator("[data-panel=instead] h3")).to_have_text("Not known who is late")
    panels.locator("[data-panel=timeline] canvas").focus()
    for _ in range(3):
        panels.locator("[data-panel=timeline] canvas").press("ArrowDown")
    expect(panels.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 392, rank 2")
    expect(said).to_have_text("not recorded on this rank in this step · recorded by 1 rank of 4")


def test_an_error_of_a_rank_is_said_and_its_traceback_shown(page: Page, jupyterlab: lab.Server, tmp_path: Path) -> None:
    fail = "    if step == 90 and rank == 1:\n        raise ValueError('bad batch')\n    if step % 10"
    train = TRAIN.format(folder=tmp_path / "run", steps=FOREVER, stop=tmp_path / "stop").replace("    if step % 10", fail, 1)
    lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}-error.ipynb", LOAD, train))
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    panels = lab.wait_live(page)
    lab.wait_cell(page, 1)
    expect(panels.locator(".dts-state")).to_have_text("failed: rank 1: ValueError: bad batch")
    lab.wait_colours(panels.locator("[data-panel=map] canvas"))
    cell = page.locator(".jp-CodeCell").nth(1)
    expect(cell.locator("img").first).to_be_visible()
    expect(
        cell.locator("[data-mime-type='application/vnd.jupyter.error'], [data-mime-type='application/vnd.jupyter.stderr']")
    ).to_have_count(1)
    expect(cell).to_contain_text("ValueError: bad batch")
    expect(cell).not_to_contain_text("RuntimeWarning")
    expect(panels.locator(".dts-finding", has_text="hang")).to_have_count(0)
