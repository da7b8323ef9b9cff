# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that a page no longer holds: fetched from the kernel, whether it is free, busy or gone, and said so where there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import dtscope_jupyter as dts
from dtscope_jupyter.view import offline
from tests.browser import lab
from tests.browser.made_run import LATE, long_run

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

RANKS, STEPS = 8, 6000
VIEW = """from pathlib import Path
from dtscope_jupyter.view.live import LiveView
live = LiveView(Path({run!r}), world_size={ranks}, title="long")
live.start()
live"""
BUSY = """import time
from pathlib import Path
while not Path({stop!r}).exists():
    time.sleep(0.05)"""
HERE = re.compile(r"^[\d.]+ ms · ")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_run(tmp_path_factory.mktemp("long") / "run", RANKS, STEPS)


@pytest.fixture
def panels(page: Page, jupyterlab: lab.Server, run: Path, tmp_path: Path) -> Locator:
    """A live view of the whole run, of which the page holds the end."""
    page.add_init_script(lab.holding('"kind":"step"'))
    cells = VIEW.format(run=str(run), ranks=RANKS), BUSY.format(stop=str(tmp_path / "stop")), "live"
    lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}-steps.ipynb", *cells))
    lab.run_cell(page, 0)
    panels = page.locator(".dts").first
    expect(panels.locator(".dts-status")).to_contain_text(re.compile(r"step 5.999"), timeout=2 * lab.PATIENCE_MS)
    return panels


def choose(panels: Locator, step: int) -> None:
    number = panels.get_by_label("step to show")
    number.fill(str(step))
    number.press("Enter")
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text(
        f"Step {step}" if step < 1000 else re.compile(f"Step {step // 1000}.{step % 1000:03}")
    )


def drawn(panels: Locator) -> None:
    """The step is there with its collectives, and who came last."""
    expect(panels.locator("[data-panel=timeline] header > .dts-sub")).to_have_text(HERE)
    rows = panels.locator("[data-panel=collectives] tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("all_reduce")
    expect(panels.locator("[data-panel=instead] h3")).to_have_text(f"What rank {LATE} did instead")


def test_an_old_step_is_fetched(panels: Locator) -> None:
    expect(panels.locator(".dts-status")).to_contain_text("rows not shown")
    choose(panels, 0)
    drawn(panels)
    panels.get_by_role("button", name="next step").click()
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 1")
    drawn(panels)


def test_a_note_says_that_the_kernel_does_not_answer_until_it_does(page: Page, panels: Locator) -> None:
    page.evaluate("() => { window.holding = true; }")
    choose(panels, 0)
    note = panels.locator("[data-panel=timeline] header > .dts-sub")
    expect(note).to_have_text("the kernel is busy; its rows will be fetched when it answers")
    expect(panels.locator("[data-panel=collectives]")).to_be_hidden()
    page.evaluate("() => window.letGo()")
    drawn(panels)


def test_a_kernel_answers_beside_the_cell_that_runs(page: Page, panels: Locator, tmp_path: Path) -> None:
    lab.run_cell(page, 1)
    choose(panels, 0)
    drawn(panels)
    expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    (tmp_path / "stop").touch()
    lab.wait_cell(page, 1)


def test_displayed_again_it_is_a_second_view_of_the_same(page: Page, panels: Locator) -> None:
    lab.run_cell(page, 2)
    second = page.locator(".dts").nth(1)
    expect(second.locator(".dts-status")).to_contain_text(re.compile(r"step 5.999"))
    choose(second, 5990)
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text(re.compile(r"Step 5.999"))
    lab.wait_colours(second.locator("[data-panel=map] canvas"))
    choose(panels, 1)
    drawn(panels)
    choose(second, 1)
    drawn(second)


def test_shown_again_from_memory_it_is_fetched_too(page: Page, jupyterlab: lab.Server, run: Path, tmp_path: Path) -> None:
    cell = "import dtscope_jupyter as dts, dtscope_jupyter.view.offline as offline\noffline.SHOW_BYTES = 2**20\n"
    cell += f"dts.open({str(run)!r}).show('timeline', rank=0, step=2)"
    lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}-show.ipynb", cell))
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0, 120)
    panels = page.locator(".dts").first
    expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 2")
    drawn(panels)


def test_a_file_says_that_it_does_not_hold_the_step(page: Page, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "FILE_BYTES", 2**20)
    panels = lab.open_file(page, dts.open(run).save_html(tmp_path / "long.html"))
    choose(panels, 0)
    expect(panels.locator("[data-panel=timeline] header > .dts-sub")).to_contain_text("this page does not hold its rows")
