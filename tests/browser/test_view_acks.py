# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""While a cell blocks the kernel, what a page sends waits there until the cell ends: it must be little, however long that takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser import lab

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CELL = """import time
from pathlib import Path
from dtscope_jupyter.view.live import LiveView
import many_ranks, dtscope_jupyter.rundir as rundir
run = Path({run!r})
rundir.create_attempt(run, {{"name": "made", "world_size": 2, "backend": "gloo"}})
ranks = [many_ranks.Rank(run, rank, 2) for rank in range(2)]
def write(first):
    for rank in ranks:
        rank.write(begin, first, first + 1)
begin = time.time_ns()
live = LiveView(run, world_size=2, title="made")
live.start()
live"""
BLOCK = """step = 0
while not Path({stop!r}).exists():
    write(step)
    step += 1
    time.sleep(0.05)"""
FREE = """for step in range(step, step + 60):
    write(step)
    await __import__("asyncio").sleep(0.05)"""


class Acks:
    """Counts the acknowledgements that a page sends."""

    def __init__(self, page: Page) -> None:
        """Before the page is opened."""
        self.count = 0
        page.on("websocket", self._opened)

    def _opened(self, socket: WebSocket) -> None:
        socket.on("framesent", self._sent)

    def _sent(self, payload: bytes | str) -> None:
        data = payload.encode() if isinstance(payload, str) else payload
        self.count += b'"kind":"ack"' in data.replace(b" ", b"")


def test_little_is_sent_to_a_kernel_that_hears_nothing(page: Page, jupyterlab: lab.Server, tmp_path: Path) -> None:
    acks = Acks(page)
    stop = tmp_path / "stop"
    paths = f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n"
    cells = (paths + CELL.format(run=str(tmp_path / "run")), BLOCK.format(stop=str(stop)), FREE)
    lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}.ipynb", *cells))
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    canvas = page.locator("[data-panel=map] canvas")
    page.wait_for_function("canvas => Number(canvas.dataset.step) > 120", arg=canvas.element_handle())
    expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    assert 0 < acks.count <= 12
    stop.touch()
    lab.wait_cell(page, 1)
    before = acks.count
    lab.run_cell(page, 2)
    lab.wait_cell(page, 2)
    assert acks.count > before + 5
