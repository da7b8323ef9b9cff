# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""While a cell blocks the kernel a page is heard beside it; where it is not, what it sends waits for the cell, and must be little."""

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

SET_COMMS = """comms => {
  window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.commsOverSubshells = comms;
}"""
LISTEN = """() => {
  window.newest = [-1, -1];
  window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.anyMessage.connect((_, { msg, direction }) => {
    const said = msg.content?.data?.content;
    if (direction === "recv" && said?.kind === "data") window.newest = [said.frame, said.heard];
  });
}"""
WINDOW, MANY = 4, 20


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


class Blocked:
    """A live view of a run that is written by a cell which blocks the kernel, at 20 steps/s until told to stop."""

    def __init__(self, page: Page, server: lab.Server, tmp_path: Path, comms: str) -> None:
        """`comms`: JupyterLab's setting commsOverSubshells."""
        self.page, self.acks, self.stop = page, Acks(page), tmp_path / "stop"
        paths = f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n"
        cells = (paths + CELL.format(run=str(tmp_path / "run")), BLOCK.format(stop=str(self.stop)), FREE)
        lab.open_notebook(page, server, server.notebook(f"{tmp_path.name}.ipynb", *cells))
        page.evaluate(SET_COMMS, comms)
        lab.run_cell(page, 0)
        lab.wait_cell(page, 0)
        page.evaluate(LISTEN)
        lab.run_cell(page, 1)
        canvas = page.locator("[data-panel=map] canvas")
        page.wait_for_function("canvas => Number(canvas.dataset.step) > 120", arg=canvas.element_handle())
        expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")


def test_a_page_is_heard_while_a_cell_runs(page: Page, jupyterlab: lab.Server, tmp_path: Path) -> None:
    blocked = Blocked(page, jupyterlab, tmp_path, "perCommTarget")
    frame, heard = page.evaluate("() => window.newest")
    assert frame - heard <= WINDOW
    assert heard > MANY
    assert blocked.acks.count > MANY
    blocked.stop.touch()
    lab.wait_cell(page, 1)


def test_little_is_sent_to_a_kernel_that_hears_nothing(page: Page, jupyterlab: lab.Server, tmp_path: Path) -> None:
    """As ipykernel before 7 does."""
    blocked = Blocked(page, jupyterlab, tmp_path, "disabled")
    acks = blocked.acks
    assert 0 < acks.count <= 12
    blocked.stop.touch()
    lab.wait_cell(page, 1)
    before = acks.count
    lab.run_cell(page, 2)
    lab.wait_cell(page, 2)
    assert acks.count > before + 5
