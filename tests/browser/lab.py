# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A real Jupyter server and a real browser, for tests and for the screenshots of the gallery."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from tests.waiting import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

CHROMIUM = os.environ.get("DTSCOPE_CHROMIUM", "/usr/bin/chromium")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_FLAGS += ["--disable-component-update", "--disable-sync", "--enable-precise-memory-info"]
PATIENCE_MS = 60_000
"""What a page may take on a busy machine; nobody waits so long on an idle one."""
START_S = 120
_TRIES = 5
_HEARD_MS = 15_000
"""A cell that was asked to run says so at once; asked again too early it would run twice."""
KEEP_TEXTS = """const plain = CanvasRenderingContext2D.prototype.fillText;
window.drawn = [];
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  window.drawn.push(String(text));
  return plain.call(this, text, ...place);
};"""
"""An init script: `window.drawn` holds every text that a canvas ever showed."""
_HOLD = """(() => {
  const plain = WebSocket.prototype.send;
  window.held = [];
  WebSocket.prototype.send = function (data) {
    const text = data instanceof ArrayBuffer ? new TextDecoder().decode(data) : String(data);
    if (window.holding && text.includes(WORD)) window.held.push([this, data]);
    else plain.call(this, data);
  };
  window.letGo = () => { window.holding = false; for (const [socket, data] of window.held.splice(0)) plain.call(socket, data); };
})()"""
_REACHED = """([panels, step]) => {
  const shown = panels.querySelector(".dts-status")?.innerText.match(/step ([\\d\\u202f]+)/);
  return shown && Number(shown[1].replaceAll("\\u202f", "")) >= step;
}"""
_COLOURED = """([canvas, least]) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size > least;
}"""
_KERNEL_READY = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
  return kernel?.connectionStatus === "connected" && kernel.status === "idle";
}"""


@dataclass(frozen=True)
class Server:
    """A running server; notebooks lie in `root`."""

    url: str
    token: str
    root: Path

    def notebook(self, name: str, *cells: str) -> Path:
        """Writes a notebook of code cells."""
        code: list[dict[str, object]] = [
            {"cell_type": "code", "id": f"cell-{place}", "source": cell, "metadata": {}} for place, cell in enumerate(cells)
        ]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        empty: dict[str, object] = {"outputs": [], "execution_count": None}
        notebook = {"cells": [cell | empty for cell in code], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        path = self.root / name
        path.write_text(json.dumps(notebook))
        return path


@contextmanager
def server(root: Path, application: str = "jupyterlab") -> Iterator[Server]:
    """JupyterLab or Notebook on a free port, with all its state under `root`."""
    home = root / "jupyter-home"
    folders = {name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    folders |= {name: str(home / name) for name in ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")}
    for folder in folders.values():
        Path(folder).mkdir(parents=True, mode=0o700)
    notebooks = root / "notebooks"
    notebooks.mkdir()
    port, token = free_port(), secrets.token_hex(16)
    options = [
        f"--ServerApp.port={port}",
        "--ServerApp.ip=127.0.0.1",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={notebooks}",
    ]
    options += ["--ServerApp.port_retries=0", "--no-browser", "--allow-root", "--LabApp.news_url=None"]
    options += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.expose_app_in_browser=True"]
    options += ["--JupyterNotebookApp.expose_app_in_browser=True"]
    with (root / "server.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", application, *options], env=os.environ | folders, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, root / "server.log")
            yield Server(url, token, notebooks)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless chromium; an error, not a skip, where it is missing."""
    if not Path(CHROMIUM).exists():
        raise FileNotFoundError(f"no browser at {CHROMIUM}: install chromium, or set DTSCOPE_CHROMIUM")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield chromium
        chromium.close()


def open_notebook(page: Page, at: Server, path: Path, *, classic: bool = False) -> None:
    """Opens a notebook and waits until its kernel is idle."""
    where = f"notebooks/{path.name}?token={at.token}" if classic else f"lab/tree/{path.name}?token={at.token}&reset"
    page.goto(f"{at.url}/{where}")
    wait_kernel(page)


def wait_kernel(page: Page) -> None:
    """Waits until the notebook's kernel is connected and idle."""
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=2 * PATIENCE_MS)
    page.wait_for_function(_KERNEL_READY, timeout=2 * PATIENCE_MS)


def run_cell(page: Page, place: int) -> None:
    """Runs a cell without waiting for its end; again where the page was not ready to hear it."""
    cell = page.locator(".jp-CodeCell").nth(place)
    prompt = cell.locator(".jp-InputPrompt")
    before = prompt.inner_text()
    for _ in range(_TRIES):
        cell.locator(".jp-InputArea-editor").click()
        page.keyboard.press("Control+Enter")
        try:
            expect(prompt).not_to_have_text(before, timeout=_HEARD_MS)
        except AssertionError:
            continue
        return
    raise RuntimeError(f"cell {place} did not start")


def wait_cell(page: Page, place: int, seconds: float = 120) -> None:
    """Waits until a cell is done."""
    prompt = page.locator(".jp-CodeCell").nth(place).locator(".jp-InputPrompt")
    expect(prompt).to_have_text(re.compile(r"\[\d+\]"), timeout=seconds * 1000)


def open_file(page: Page, path: Path) -> Locator:
    """Opens a saved page and waits until its panels are drawn."""
    page.goto(path.as_uri())
    page.wait_for_function("() => performance.getEntriesByName('dtscope-first-draw').length")
    return page.locator(".dts")


def holding(word: str) -> str:
    """An init script: while `window.holding` is true, what the page sends with this word in it waits for `window.letGo()`."""
    return _HOLD.replace("WORD", json.dumps(word))


def count_messages(page: Page) -> None:
    """Has `window.came` count the messages that the kernel sends to the page's widgets from now on."""
    page.evaluate("""() => {
      window.came = 0;
      window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.anyMessage.connect((_, { msg, direction }) => {
        if (direction === "recv" && msg.header.msg_type === "comm_msg") window.came++;
      });
    }""")


def wait_frame(page: Page) -> None:
    """Waits until all that was asked of the panels before is drawn: they draw in the next animation frame."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")


def wait_live(page: Page) -> Locator:
    """The page's first panels, once they follow the steps of a run."""
    panels = page.locator(".dts").first
    expect(panels.locator(".dts-status")).to_contain_text(re.compile(r"step [\d\u202f]+ · [\d.]+ steps/s"), timeout=2 * PATIENCE_MS)
    return panels


def shown_step(panels: Locator) -> int:
    """The newest step, as the panels say it."""
    found = re.search(r"step ([\d\u202f]+) ·", panels.locator(".dts-status").inner_text())
    assert found, panels.inner_text()
    return int(found[1].replace("\u202f", ""))


def wait_step(panels: Locator, step: int) -> None:
    """Waits until the panels have come to a step, at least."""
    panels.page.wait_for_function(_REACHED, arg=[panels.element_handle(), step], timeout=PATIENCE_MS)


def wait_colours(canvas: Locator, more_than: int = 5) -> None:
    """Waits until a canvas shows a picture: more than so many different colours."""
    canvas.page.wait_for_function(_COLOURED, arg=[canvas.element_handle(), more_than], timeout=PATIENCE_MS)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/api", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"no Jupyter server at {url}:\n{log.read_text()[-4000:]}")
