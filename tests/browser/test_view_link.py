# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live panels where the link to the page is slow: no queue grows, and the newest is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser import lab
from tests.browser.test_view_live import LOAD, TRAIN, shown_step

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

STEPS = 100_000
WINDOW = 4
HOLD = """() => {
  const plain = WebSocket.prototype.send;
  window.held = [];
  WebSocket.prototype.send = function (data) {
    const text = data instanceof ArrayBuffer ? new TextDecoder().decode(data) : String(data);
    if (window.holding && text.includes('"ack"')) window.held.push([this, data]);
    else plain.call(this, data);
  };
  window.letGo = () => { window.holding = false; for (const [socket, data] of window.held.splice(0)) plain.call(socket, data); };
}"""


class TestBackground:
    """The cell returns at once, so that the kernel hears the page's acknowledgements."""

    @pytest.fixture
    def stop(self, tmp_path: Path) -> Path:
        return tmp_path / "stop"

    @pytest.fixture
    def running(self, page: Page, jupyterlab: lab.Server, tmp_path: Path, stop: Path) -> Locator:
        page.add_init_script(f"({HOLD})()")
        train = TRAIN.format(folder=tmp_path / "run", steps=STEPS, stop=stop).replace("-n 2", "-n 2 --background", 1)
        lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}-link.ipynb", LOAD, train))
        lab.run_cell(page, 0)
        lab.wait_cell(page, 0)
        lab.run_cell(page, 1)
        panels = page.locator(".dts").first
        expect(panels.locator(".dts-status")).to_contain_text(re.compile(r"step \d+ · [\d.]+ steps/s"), timeout=60_000)
        return panels

    def test_a_slow_link_gets_a_few_messages_then_the_newest(self, page: Page, running: Locator, stop: Path) -> None:
        page.evaluate("() => { window.holding = true; }")
        page.wait_for_function("() => window.held.length >= 1")
        before = shown_step(running)
        page.wait_for_function(
            "before => +document.querySelector('.dts-status').innerText.match(/step (\\d+)/)[1] > before + 60", arg=before
        )
        # Half a second's worth at 10 messages a second, then one a second: without a window there would be 10 a second.
        held = page.evaluate("() => window.held.length")
        assert WINDOW <= held <= WINDOW + 6
        page.evaluate("() => window.letGo()")
        after = shown_step(running)
        page.wait_for_function("after => +document.querySelector('.dts-status').innerText.match(/step (\\d+)/)[1] > after", arg=after)
        expect(running.locator(".dts-status")).to_contain_text("no row lost")
        stop.touch()
        expect(running.locator(".dts-state")).to_have_text("finished")
