# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A tab that nobody sees draws nothing, and shows the newest when it is seen again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser import lab
from tests.browser.test_view_live import end, running, stop

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

__all__ = ["running", "stop"]

COUNT = """() => {
  window.strokes = 0;
  const rect = CanvasRenderingContext2D.prototype.fillRect;
  CanvasRenderingContext2D.prototype.fillRect = function (...a) { window.strokes++; return rect.apply(this, a); };
  window.turn = hidden => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    Object.defineProperty(document, 'visibilityState', { value: hidden ? 'hidden' : 'visible', configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  };
}"""


def test_a_hidden_tab_draws_nothing_then_the_newest(page: Page, running: Locator, stop: Path) -> None:
    page.evaluate(COUNT)
    lab.count_messages(page)
    page.evaluate("() => window.turn(true)")
    lab.wait_frame(page)
    before = lab.shown_step(running)
    page.evaluate("() => { window.strokes = 0; window.came = 0; }")
    page.wait_for_function("() => window.came >= 15")
    assert page.evaluate("() => window.strokes") == 0
    assert lab.shown_step(running) == before
    page.evaluate("() => window.turn(false)")
    lab.wait_step(running, before + 6)
    page.wait_for_function("() => window.strokes > 20")
    end(page, stop)
    expect(running.locator(".dts-state")).to_have_text("finished")
