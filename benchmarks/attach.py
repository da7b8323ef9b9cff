# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Attaching to what runs: what an armed rank costs before, during and after, how soon hooks are in and out, and the first picture.

    python benchmarks/attach.py cost [--rounds 10] [--out FILE]
    python benchmarks/attach.py hooks [--times 20] [--out FILE]
    python benchmarks/attach.py frame [--times 8] [--out FILE]

`cost`: three torchrun jobs of two gloo ranks take turns of a few steps: bare, bare again (A/A) and with DTRAINSCOPE_ENABLE=attach, which is
attached to after a third of the rounds and detached from after two thirds. Ratios are of turns that follow each other.

`hooks`: milliseconds in which a rank that is training has all its hooks in, or out, as it tells itself; and from the question to
its answer, which comes when the files are open, or what was recorded is written.

`frame`: JupyterLab in headless chromium, an armed job that takes a step each 50 ms (kernel and page need cores too); from the key that
runs `%dtscope attach DIR` to the frame in which the map is drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from contextlib import contextmanager
from multiprocessing.connection import Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interleaved import write

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dtscope_jupyter.agent import control  # noqa: E402 - the path comes first
from tests.browser import lab  # noqa: E402 - the path comes first

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

STEPS = 8
WARM = 60
JOB = """
import os, sys, time, torch, torch.distributed as dist
from multiprocessing.connection import Client
address, key = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())])
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(96, 512)
orders = Client(address, authkey=bytes.fromhex(key))
orders.send(dist.get_rank())
while steps := orders.recv():
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    orders.send(((time.perf_counter() - wall) / steps, (time.thread_time() - cpu) / steps))
dist.destroy_process_group()
"""
WATCH = """() => {
  const canvases = () => [...document.querySelectorAll('[data-panel=map] canvas')].filter(canvas => canvas.dataset.step);
  const before = new Set(canvases());
  window.dtscopePressed = window.dtscopeFirst = null;
  document.addEventListener('keydown', event => {
    if (event.key === 'Enter') window.dtscopePressed = performance.now();
  }, {capture: true});
  const look = new MutationObserver(() => {
    if (!canvases().some(canvas => !before.has(canvas))) return;
    look.disconnect();
    requestAnimationFrame(() => { window.dtscopeFirst = performance.now(); });
  });
  look.observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ['data-step']});
}"""


class Job:
    """Two ranks under torchrun that train when told to."""

    def __init__(self, folder: Path, name: str, enable: str | None) -> None:
        self.runs = folder / name
        script, key = folder / "job.py", secrets.token_bytes(16)
        script.write_text(JOB)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DTRAINSCOPE_")}
        if enable:
            environment |= {"DTRAINSCOPE_ENABLE": enable, "DTRAINSCOPE_LOG_DIR": str(self.runs)}
        with Listener(str(folder / f"{name}.sock"), family="AF_UNIX", authkey=key) as listener:
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            self.process = subprocess.Popen([*launcher, str(script), str(listener.address), key.hex()], env=environment)
            found = [listener.accept() for _ in range(2)]
        ranks = {pipe.recv(): pipe for pipe in found}
        self.pipes: list[Connection] = [ranks[rank] for rank in sorted(ranks)]

    @property
    def folders(self) -> list[Path]:
        """The rank folders."""
        return sorted(self.runs.glob("*/rank-*"))

    def train(self, steps: int = STEPS) -> tuple[float, float]:
        """Milliseconds a step, of the slower rank: by the clock, and of CPU of the training thread."""
        for pipe in self.pipes:
            pipe.send(steps)
        turns = [pipe.recv() for pipe in self.pipes]
        return 1e3 * max(wall for wall, _ in turns), 1e3 * max(cpu for _, cpu in turns)

    def ask(self, command: str) -> tuple[list[float], list[float]]:
        """Of each rank, milliseconds of its hooks, and until its answer."""
        hooks, answers = [], []
        for folder in self.folders:
            begin = time.perf_counter()
            reply = control.ask(folder, {"command": command}, 10)
            answers.append(1e3 * (time.perf_counter() - begin))
            hooks.append(float(reply["hooks_ms"]))
        return hooks, answers

    def end(self) -> None:
        """Lets it end."""
        for pipe in self.pipes:
            pipe.send(0)
        self.process.wait(30)


@contextmanager
def training(job: Job, steps: int, pause: float) -> Iterator[None]:
    """Has it train all the while: some steps, a pause of seconds, and so on."""
    stop = threading.Event()

    def go() -> None:
        while not stop.wait(pause):
            job.train(steps)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cost(folder: Path, rounds: int) -> dict[str, Any]:
    """Ratios to bare by phase, with A/A beside."""
    jobs = {"bare": Job(folder, "bare", None), "again": Job(folder, "again", None), "armed": Job(folder, "armed", "attach")}
    for job in jobs.values():
        job.train(WARM)
    found: dict[str, Any] = {}
    for phase, before in (("idle", None), ("attached", "attach"), ("detached", "detach")):
        if before:
            jobs["armed"].ask(before)
            for job in jobs.values():
                job.train(WARM // 2)
        found[phase] = _phase(jobs, rounds)
    for job in jobs.values():
        job.end()
    return found


def _phase(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    names = list(jobs)
    for turn in range(rounds):
        for name in names[turn % 3 :] + names[: turn % 3]:
            seen[name].append(jobs[name].train())

    def ratio(name: str, which: int) -> float:
        return statistics.median(ours[which] / bare[which] for ours, bare in zip(seen[name], seen["bare"], strict=True))

    step = statistics.median(wall for wall, _ in seen["bare"])
    found = {"bare_step_ms": step, "wall_ratio": ratio("armed", 0), "wall_a_a": ratio("again", 0)}
    return found | {"cpu_ratio": ratio("armed", 1), "cpu_a_a": ratio("again", 1)}


def hooks(folder: Path, times: int) -> dict[str, Any]:
    """Milliseconds of attaching and detaching, of each rank each time."""
    job = Job(folder, "armed", "attach")
    job.train(WARM)
    took: dict[str, list[float]] = {}
    with training(job, 4, 0.0):
        for _ in range(times):
            for command, name in (("attach", "hooks_in"), ("detach", "hooks_out")):
                placed, answered = job.ask(command)
                took.setdefault(f"{name}_ms", []).extend(placed)
                took.setdefault(f"{command}_answered_ms", []).extend(answered)
                time.sleep(0.3)
    job.end()
    return {name: _spread(values) for name, values in took.items()}


def frame(folder: Path, times: int) -> dict[str, Any]:
    """Milliseconds from the key to the first picture."""
    job = Job(folder, "armed", "attach")
    job.train(WARM)
    with lab.server(folder) as server, lab.browser() as browser, training(job, 1, 0.05):
        page = browser.new_page(viewport={"width": 1300, "height": 1400})
        cells = [f"%dtscope attach {job.runs}", "%dtscope detach"] * times
        lab.open_notebook(page, server, server.notebook("attach.ipynb", "%load_ext dtscope_jupyter", *cells))
        lab.run_cell(page, 0)
        lab.wait_cell(page, 0)
        page.wait_for_timeout(5000)  # until the warm process, which %load_ext starts, has imported torch
        took = []
        for place in range(1, 2 * times, 2):
            page.locator(".jp-CodeCell").nth(place).scroll_into_view_if_needed()
            page.evaluate(WATCH)
            lab.run_cell(page, place)
            page.wait_for_function("() => window.dtscopeFirst", timeout=60_000)
            took.append(float(page.evaluate("() => window.dtscopeFirst - window.dtscopePressed")))
            lab.wait_cell(page, place)
            lab.run_cell(page, place + 1)
            lab.wait_cell(page, place + 1)
    job.end()
    return {"first_of_the_kernel_ms": took[0], "later_ms": _spread(took[1:])}


def _spread(values: list[float]) -> dict[str, float]:
    ninth = sorted(values)[-1 - len(values) // 10]
    return {"median": statistics.median(values), "p90": ninth, "largest": max(values), "times": len(values)}


def main() -> None:
    """Prints what was asked for; --out keeps it beside what is in the file already."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("cost", "hooks", "frame"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.what == "cost":
            found = cost(folder, options.rounds)
        else:
            found = hooks(folder, options.times or 20) if options.what == "hooks" else frame(folder, options.times or 8)
    print(json.dumps(found, indent=1))
    if options.out:
        kept = json.loads(options.out.read_text()) if options.out.exists() else {}
        kept.pop("machine", None)
        write(options.out, kept | {options.what: found})


if __name__ == "__main__":
    main()
