# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Panning a map of many ranks moves its picture and paints what comes in; that must show what painting it all would."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dtscope_jupyter.view import offline
from dtscope_jupyter.view.live_pack import of_tables
from tests.browser import lab

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

RANKS, STEPS = 96, 6000
PIXELS = """canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const words = new Uint32Array(data.buffer);
  return { sum: words.reduce((sum, word) => (Math.imul(sum, 31) + word) | 0, 0), colours: new Set(words).size };
}"""
PAN = "(canvas, by) => canvas.dispatchEvent(new WheelEvent('wheel', { deltaX: by, bubbles: true, cancelable: true }))"


@pytest.fixture
def canvas(page: Page, tmp_path: Path) -> Locator:
    cells = np.random.default_rng(0).gamma(2, 3, (RANKS, STEPS)).astype(np.float32)
    cells[:, ::97] = np.nan
    status: dict[str, Any] = {"title": "made", "world_size": RANKS, "state": "finished", "live": False}
    message = of_tables({}, {"status": status})
    message.add_matrix("exposed", list(range(RANKS)), 0, cells)
    path = tmp_path / "page.html"
    path.write_text(offline.page("made", base64.b64encode(gzip.compress(message.pack(), 1)).decode()))
    lab.open_file(page, path)
    return page.locator("[data-panel=map] canvas")


@pytest.mark.parametrize("zooms", [2, 5, 7])
def test_a_panned_map_is_the_map_drawn_at_once(page: Page, canvas: Locator, zooms: int) -> None:
    for _ in range(zooms):
        canvas.press("+")
    seen = []
    for by in (40, 333, -75, 1, 12, -230, 4000, -9000):
        canvas.evaluate(PAN, by)
        lab.wait_frame(page)
        panned = canvas.evaluate(PIXELS)
        for metric in ("wait", "exposed"):
            page.get_by_label("metric").select_option(metric)
            lab.wait_frame(page)
        assert canvas.evaluate(PIXELS) == panned
        assert panned["colours"] > 50
        seen.append(panned["sum"])
    assert len(set(seen)) == len(seen)
