# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live panels in a real JupyterLab and headless chromium: how soon a step is drawn, and what many ranks cost.

    python benchmarks/live.py latency [--seconds 20] [--out FILE]
    python benchmarks/live.py ranks [--minutes 2] [--ranks 64] [--rate 20] [--out FILE]

`latency`: two gloo ranks under %%dtscope profile, paced to 50 steps/s. From the end of a step on the later rank (steps.end_ns) to
the frame in which the page's map has it on every rank; target 400 ms for the 95th percentile.

`ranks`: rank folders that a process beside the kernel writes with the agents' own writer, 20 steps/s each unless --rate says another,
shown by a live view. Growth of the browser's heap after the first minute, collected before it is read (target 20 MB for 10 minutes), frames
and rows that were left out (target 0), and the processor time of the kernel's threads (target 5 % for the pump, 15 % for the analysis).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from interleaved import write

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import dtscope_jupyter as dts  # noqa: E402 - the path comes first
from tests.browser import lab  # noqa: E402 - the path comes first

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page, WebSocket

PACE = 50
MIB = 2**20
WARM_STEPS = 2 * PACE
TRAIN = """%%dtscope profile -n 2 --dir {run}
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
begin = time.perf_counter()
for step in range({steps}):
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(max(0, begin + (step + 1) / {pace} - time.perf_counter()))
"""
VIEW = """from pathlib import Path
from dtscope_jupyter.view.live import LiveView
live = LiveView(Path({run!r}), world_size={ranks}, title="{ranks} ranks")
live.start()
live"""
ASK = """import json, threading
from pathlib import Path
def seconds(thread):
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
used = {thread.name: seconds(thread) for thread in threading.enumerate() if thread.name.startswith("dtscope")}
print(json.dumps({"threads": used, "sent": live._pump._window.sent, "skipped": live._pump._tail.skipped}))"""
WATCH = """() => {
  const canvas = document.querySelector('[data-panel=map] canvas');
  const drawn = window.dtscopeDrawn = [];
  let newest = -1;
  new MutationObserver(() => {
    const step = Number(canvas.dataset.step);
    if (canvas.dataset.step === '' || step <= newest) return;
    newest = step;
    // The task after the next frame begins is the first in which the pixels are on their way to the screen.
    requestAnimationFrame(() => { const at = performance.timeOrigin + performance.now(); drawn.push([step, at]); });
  }).observe(canvas, {attributes: true, attributeFilter: ['data-step']});
}"""


def latency(page: Page, server: lab.Server, seconds: float) -> dict[str, Any]:
    """Milliseconds from the end of steps to their picture, of all but the first two seconds."""
    run = server.root / "run"
    cell = TRAIN.format(run=run, steps=int((seconds + 2) * PACE), pace=PACE)
    lab.open_notebook(page, server, server.notebook("latency.ipynb", "%load_ext dtscope_jupyter", cell))
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.run_cell(page, 1)
    page.wait_for_selector("[data-panel=map] canvas[data-step]", timeout=120_000, state="attached")
    page.evaluate(WATCH)
    lab.wait_cell(page, 1, seconds + 120)
    drawn: list[tuple[int, float]] = page.evaluate("() => window.dtscopeDrawn")
    steps = dts.open(run).table("steps")
    ends = steps.groupby("step")["end_ns"].max()
    rate = (len(ends) - 1) / ((ends.max() - ends.min()) / 1e9)
    first, last = max(WARM_STEPS, drawn[0][0] + 1), drawn[-1][0]
    at = np.array([step for step, _ in drawn])
    waits = [drawn[int(np.searchsorted(at, step))][1] - ends[step] / 1e6 for step in ends.index if first <= step <= last]
    return {"steps": len(waits), "pictures": len(drawn), "steps_per_s": rate} | spread(waits)


def spread(values: list[float]) -> dict[str, float]:
    """Quantiles of milliseconds."""
    names = {"median_ms": 50, "p95_ms": 95, "p99_ms": 99, "largest_ms": 100}
    return {name: float(np.percentile(values, share)) for name, share in names.items()}


class Link:
    """Counts what comes over the page's connection to the kernel."""

    def __init__(self, page: Page) -> None:
        """Before the page is opened."""
        self.frames: set[int] = set()
        self.bytes = 0
        page.on("websocket", self._opened)

    def _opened(self, socket: WebSocket) -> None:
        if "/channels" in socket.url:
            socket.on("framereceived", self._received)

    def _received(self, payload: bytes | str) -> None:
        data = payload.encode() if isinstance(payload, str) else payload
        self.bytes += len(data)
        if (found := re.search(rb'"frame": ?(\d+)[,}]', data[:200_000])) and b'"custom"' in data[:200_000]:
            self.frames.add(int(found[1]))


def many(page: Page, server: lab.Server, ranks: int, minutes: float, rate: float) -> dict[str, Any]:
    """Heap of the browser over time, losses, and the processor time of the kernel's threads."""
    run = server.root / "many"
    link = Link(page)
    notebook = server.notebook("ranks.ipynb", VIEW.format(run=str(run), ranks=ranks), ASK)
    lab.open_notebook(page, server, notebook)
    made = [str(run), str(ranks), str(60 * minutes + 5), str(rate)]
    writer = subprocess.Popen([sys.executable, str(ROOT / "benchmarks" / "many_ranks.py"), *made])
    try:
        lab.run_cell(page, 0)
        page.wait_for_selector("[data-panel=map] canvas[data-step]", timeout=60_000, state="attached")
        begin, heap, devtools = time.monotonic(), [], page.context.new_cdp_session(page)
        while (passed := time.monotonic() - begin) < 60 * minutes:
            page.wait_for_timeout(min(10_000, 1000 * (60 * minutes - passed)))
            heap.append((time.monotonic() - begin, *held(devtools)))
        step = int(page.locator("[data-panel=map] canvas").get_attribute("data-step") or -1)
        seconds = time.monotonic() - begin
        lab.run_cell(page, 1)
        lab.wait_cell(page, 1)
        told = json.loads(page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output").inner_text())
    finally:
        writer.terminate()
        writer.wait()
    return summary(heap, told, link, seconds) | {"step": step, "ranks": ranks, "steps_per_s": rate}


def held(devtools: CDPSession) -> tuple[float, float]:
    """MB on the JavaScript heap and in its buffers, after collection."""
    devtools.send("HeapProfiler.collectGarbage")
    usage = devtools.send("Runtime.getHeapUsage")
    return usage["usedSize"] / 1e6, usage.get("backingStorageSize", float("nan")) / 1e6


def summary(heap: list[tuple[float, float, float]], told: dict[str, Any], link: Link, seconds: float) -> dict[str, Any]:
    """What is printed."""
    sums = [(at, used + buffers) for at, used, buffers in heap]
    base = next((mb for at, mb in sums if at >= 60), sums[0][1])
    cpu = {name.removeprefix("dtscope-"): 100 * used / seconds for name, used in told["threads"].items()}
    # A page joins at the message that follows its first picture; what came before was never its own.
    missing = sum(frame not in link.frames for frame in range(min(link.frames), max(link.frames) + 1)) if link.frames else -1
    return {
        "heap_mb": sums, "heap_growth_mb": sums[-1][1] - base, "messages_sent": told["sent"] + 1, "messages_received": len(link.frames),
        "messages_missing": missing, "rows_skipped": told["skipped"], "kernel_cpu_percent": cpu,
        "megabytes_per_s": link.bytes / 1e6 / seconds, "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    """Prints the table of what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("latency", "ranks"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, lab.server(Path(folder)) as server, lab.browser() as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 1400})
        if options.what == "latency":
            found = latency(page, server, options.seconds)
        else:
            found = many(page, server, options.ranks, options.minutes, options.rate)
        found["server_limit_said"] = (Path(folder) / "server.log").read_text().count("data rate exceeded")
    found["load"] = load
    for name, value in found.items():
        print(f"{name:<20} {json.dumps(value) if isinstance(value, (dict, list)) else format(value, '.5g')}")
    if options.out:
        write(options.out, {options.what: found})


if __name__ == "__main__":
    main()
