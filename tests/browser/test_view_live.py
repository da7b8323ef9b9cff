# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The live panels in a real JupyterLab, with real ranks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser import lab

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

LOAD = "%load_ext dtscope_jupyter"
TRAIN = """%%dtscope profile -n 2 --dir {folder}
import time, torch, torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
model = DistributedDataParallel(model, bucket_cap_mb=0.05)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range({steps}):
    model(torch.randn(32, 128)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02 + 0.02 * rank)
    if step % 10 == 0:
        print("at step", step)
    ending = torch.tensor(float(Path("{stop}").exists()))
    dist.all_reduce(ending)
    if ending:
        break
"""
FOREVER = 100_000


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    """A file whose coming ends the training loop."""
    return tmp_path / "stop"


@pytest.fixture
def running(page: Page, jupyterlab: lab.Server, tmp_path: Path, stop: Path) -> Locator:
    """Panels of a run that trains until told to stop, after its first steps, while its cell blocks the kernel."""
    notebook = jupyterlab.notebook(f"{tmp_path.name}.ipynb", LOAD, TRAIN.format(folder=tmp_path / "run", steps=FOREVER, stop=stop), "1 + 1")
    lab.open_notebook(page, jupyterlab, notebook)
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    return lab.wait_live(page)


def end(page: Page, stop: Path) -> None:
    """Lets the loop end, and waits for the cell."""
    stop.touch()
    lab.wait_cell(page, 1)


def choose_first(panels: Locator) -> Locator:
    """Clicks at the left edge of the map, in its first row; the map."""
    canvas = panels.locator("[data-panel=map] canvas")
    canvas.click(position={"x": 84.5, "y": 40})
    return canvas


def reloaded(page: Page, running: Locator, stop: Path) -> Locator:
    """The panels of a page that was loaded again during the run, after it, with all that was shown before."""
    page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
    reached = lab.shown_step(running)
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    stop.touch()
    panels = page.locator(".dts").first
    # A busy kernel may tell the new page of its widgets only when the cell is done.
    expect(panels.locator(".dts-state")).to_have_text("finished", timeout=2 * lab.PATIENCE_MS)
    lab.wait_step(panels, reached)
    return panels


def check_lost(page: Page, panels: Locator) -> None:
    """Panels whose kernel is started anew say so, and keep their picture."""
    page.evaluate("() => void jupyterapp.commands.execute('notebook:restart-kernel')")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    expect(panels.locator(".dts-state")).to_contain_text("the kernel is gone")
    lab.wait_colours(panels.locator("[data-panel=map] canvas"))


class TestWhileTheCellBlocks:
    def test_steps_go_on_and_the_map_is_drawn(self, page: Page, running: Locator, stop: Path) -> None:
        expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
        lab.wait_step(running, lab.shown_step(running) + 21)
        lab.wait_colours(running.locator("[data-panel=map] canvas"))
        lab.wait_colours(running.locator("[data-panel=timeline] canvas"))
        expect(running.locator("[data-panel=collectives] tbody tr").first).to_contain_text("all_reduce")
        end(page, stop)
        expect(running.locator(".dts-state")).to_have_text("finished")

    def test_a_click_leads_to_the_step_and_back(self, page: Page, running: Locator, stop: Path) -> None:
        canvas = choose_first(running)
        expect(running.locator("[data-panel=timeline] h3")).to_have_text("Step 0")
        expect(running.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 0, rank 0")
        canvas.press("ArrowRight")
        canvas.press("ArrowDown")
        expect(running.locator("[data-panel=collectives] h3")).to_have_text("Collectives of step 1, rank 1")
        running.get_by_label("back to where you looked before").click()
        running.get_by_label("back to where you looked before").click()
        expect(running.locator("[data-panel=timeline] h3")).to_have_text("Step 0")
        running.get_by_label("let the selection follow the newest step").click()
        expect(running.locator("[data-panel=timeline] .dts-sub")).to_contain_text("newest")
        end(page, stop)

    def test_keys_typed_in_a_panel_are_no_commands_to_the_notebook(self, page: Page, running: Locator, stop: Path) -> None:
        cells = page.locator(".jp-Cell")
        before = cells.count()
        timeline = running.locator("[data-panel=timeline] canvas")
        whole = timeline.get_attribute("data-window") or ""
        page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt").click()
        for key in ("d", "d", "a", "a", "w", "w"):
            timeline.press(key)
        expect(timeline).not_to_have_attribute("data-window", whole)
        assert cells.count() == before
        end(page, stop)

    def test_the_log_of_each_rank_can_be_read(self, page: Page, running: Locator, stop: Path) -> None:
        running.get_by_role("tab", name="log").click()
        expect(running.locator(".dts-log")).to_contain_text("at step 10")
        running.get_by_label("search the log").fill("step 10")
        running.locator("[data-panel=log] select").select_option("1")
        expect(running.locator(".dts-log > div").first).to_have_text("1at step 10")
        end(page, stop)


class TestLife:
    def test_two_views_of_one_run(self, page: Page, running: Locator, stop: Path) -> None:
        page.locator(".jp-OutputArea-output .dts").first.click(button="right", position={"x": 5, "y": 5})
        page.get_by_text("Create New View for Cell Output").click()
        views = page.locator(".dts")
        expect(views).to_have_count(2)
        for place in range(2):
            expect(views.nth(place).locator(".dts-status")).to_contain_text(re.compile(r"step \d+"))
        page.wait_for_function("() => [...document.querySelectorAll('.dts canvas')].filter(c => c.width > 300).length >= 4")
        expect(running).to_be_visible()
        end(page, stop)
        expect(views.nth(0).locator(".dts-state")).to_have_text("finished")

    def test_a_page_reloaded_during_the_run_shows_all_of_it_after(self, page: Page, running: Locator, stop: Path) -> None:
        panels = reloaded(page, running, stop)
        choose_first(panels)
        expect(panels.locator("[data-panel=timeline] h3")).to_have_text(re.compile("Step [0-3]$"))

    def test_interrupt_leaves_the_report(self, page: Page, running: Locator) -> None:
        page.locator(".jp-CodeCell").nth(1).locator(".jp-InputArea-editor").click()
        page.keyboard.press("Escape")
        page.keyboard.press("i")
        page.keyboard.press("i")
        lab.wait_cell(page, 1)
        expect(running.locator(".dts-state")).to_contain_text("interrupted")
        expect(page.locator(".jp-CodeCell").nth(1).locator("img").first).to_be_visible()

    def test_a_lost_kernel_is_said(self, page: Page, running: Locator, stop: Path) -> None:
        end(page, stop)
        check_lost(page, running)


class TestSaved:
    def test_a_saved_notebook_opens_without_kernel_with_its_picture(
        self, page: Page, running: Locator, stop: Path, jupyterlab: lab.Server, tmp_path: Path, chromium: Browser
    ) -> None:
        end(page, stop)
        expect(running.locator(".dts-state")).to_have_text("finished")
        page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
        path = jupyterlab.root / f"{tmp_path.name}.ipynb"
        notebook = json.loads(path.read_text())
        outputs = notebook["cells"][1]["outputs"]
        assert "widgets" not in notebook["metadata"]
        assert any("image/png" in output.get("data", {}) for output in outputs)
        widgets = [output["data"] for output in outputs if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]
        assert ["".join(data["text/plain"]) for data in widgets] == ["dtscope: panels of 2 ranks (shown while the kernel runs)"]
        copy = jupyterlab.root / f"{tmp_path.name}-copy.ipynb"
        copy.write_text(json.dumps(json.loads(path.read_text()) | {"metadata": {}}))
        fresh = chromium.new_page()
        fresh.goto(f"{jupyterlab.url}/lab/tree/{copy.name}?token={jupyterlab.token}&reset")
        expect(fresh.locator(".jp-CodeCell img").first).to_be_visible(timeout=2 * lab.PATIENCE_MS)
        fresh.close()
