# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live panels where the link to the page is slow: no queue grows, and the newest is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser import lab
from tests.browser.test_view_live import LOAD, TRAIN

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

STEPS = 100_000
WINDOW = 4


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    return tmp_path / "stop"


@pytest.fixture(params=["", " --background"], ids=["while the cell runs", "in the background"])
def running(request: pytest.FixtureRequest, page: Page, jupyterlab: lab.Server, tmp_path: Path, stop: Path) -> Locator:
    page.add_init_script(lab.holding('"ack"'))
    train = TRAIN.format(folder=tmp_path / "run", steps=STEPS, stop=stop).replace("-n 2", f"-n 2{request.param}", 1)
    lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}-link.ipynb", LOAD, train))
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    return lab.wait_live(page)


def test_a_slow_link_gets_a_few_messages_then_the_newest(page: Page, running: Locator, stop: Path) -> None:
    lab.count_messages(page)
    page.evaluate("() => { window.holding = true; window.since = performance.now(); }")
    page.wait_for_function("() => window.held.length >= 1")
    lab.wait_step(running, lab.shown_step(running) + 61)
    page.wait_for_function("() => performance.now() - window.since > 3000")
    # Half a second's worth at 10 messages a second, then one a second: without a window there would be 10 a second.
    came, seconds = page.evaluate("() => [window.came, (performance.now() - window.since) / 1000]")
    assert WINDOW <= came <= WINDOW + 2 + 2 * seconds
    page.evaluate("() => window.letGo()")
    lab.wait_step(running, lab.shown_step(running) + 1)
    expect(running.locator(".dts-status")).to_contain_text("no row lost")
    stop.touch()
    expect(running.locator(".dts-state")).to_have_text("finished")
