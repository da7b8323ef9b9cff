# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A long live run in a real JupyterLab: memory of the browser, the kernel and the ranks over hours.

    python benchmarks/live_long.py [--minutes 120] [--rate 10] [--series FILE] [--out FILE]
    python benchmarks/live_long.py --read FILE [--out FILE]

One cell, `%%dtscope profile` of two gloo ranks, a small DistributedDataParallel model paced to `--rate` steps/s, in headless chromium.
Every 30 s a line of JSON goes to `--series`: the page's heap and buffers after a collection, its nodes and listeners, resident memory and
processor time of kernel, page and ranks, the step that the map shows, frames that came and that are missing. `--read` sums up a series,
also an unfinished one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from interleaved import write
from live import MIB, TRAIN, Link, held

from tests.browser import lab

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

PERIOD_S = 30
SETTLED_S = 600
IMPORTED = "import os, dtscope_jupyter; print(os.getpid(), dtscope_jupyter.__file__)"
TICKS = os.sysconf("SC_CLK_TCK")


def used(pid: int) -> dict[str, float]:
    """Resident MiB and processor seconds of a process; empty where it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {"rss_mib": int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / MIB, "cpu_s": (int(fields[11]) + int(fields[12])) / TICKS}


def ranks(run: Path) -> dict[str, int]:
    """Pid by the name of the rank's folder."""
    return {path.parent.name: json.loads(path.read_text())["pid"] for path in sorted(run.rglob("rank.json"))}


def renderer() -> int:
    """Pid of the largest page process of the browser that this process started; 0 where none is."""
    pages = [pid for pid in _descendants(os.getpid()) if "--type=renderer" in _command(pid)]
    return max(pages, key=lambda pid: used(pid).get("rss_mib", 0), default=0)


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return children + [below for child in children for below in _descendants(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def sample(page: Page, devtools: CDPSession, pids: dict[str, int], link: Link) -> dict[str, Any]:
    """What the page and the processes hold now."""
    heap, buffers = held(devtools)
    counters = devtools.send("Memory.getDOMCounters")
    step = page.locator("[data-panel=map] canvas").first.get_attribute("data-step")
    frames = link.frames
    missing = sum(frame not in frames for frame in range(min(frames), max(frames) + 1)) if frames else -1
    seen = {"heap_mb": heap, "buffers_mb": buffers, "nodes": counters["nodes"], "listeners": counters["jsEventListeners"]}
    seen |= {"step": int(step or -1), "frames": len(frames), "frames_missing": missing, "received_mb": link.bytes / 1e6}
    return seen | {name: used(pid) for name, pid in pids.items()}


def follow(page: Page, server: lab.Server, minutes: float, rate: float, series: Path) -> dict[str, Any]:
    """Runs the cell and writes a line each half minute; what the last picture and the cell's report said."""
    run, link, errors = server.root / "run", Link(page), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    cell = TRAIN.format(run=run, steps=int(60 * minutes * rate), pace=rate)
    lab.open_notebook(page, server, server.notebook("long.ipynb", "%load_ext dtscope_jupyter", IMPORTED, cell))
    for place in (0, 1):
        lab.run_cell(page, place)
        lab.wait_cell(page, place)
    kernel, _, package = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output").inner_text().strip().partition(" ")
    lab.run_cell(page, 2)
    page.wait_for_selector("[data-panel=map] canvas[data-step]", timeout=120_000, state="attached")
    pids = {"kernel": int(kernel), "page": renderer()} | ranks(run)
    _record(page, pids, link, 60 * minutes, series, package)
    lab.wait_cell(page, 2, 600)
    panels = page.locator(".jp-CodeCell").nth(2)
    said = {"state": panels.locator(".dts-state").first.inner_text(), "page_errors": errors}
    report = panels.locator(".jp-OutputArea-output").last.inner_text()
    return said | {"status": panels.locator(".dts-status").first.inner_text(), "report": report[:400]}


def _record(page: Page, pids: dict[str, int], link: Link, seconds: float, series: Path, package: str) -> None:
    devtools, begin, busy = page.context.new_cdp_session(page), time.monotonic(), re.compile(r"\[\*\]")
    prompt = page.locator(".jp-CodeCell").nth(2).locator(".jp-InputPrompt")
    with series.open("a") as lines:
        while (passed := time.monotonic() - begin) < seconds + 300 and busy.search(prompt.inner_text()):
            row = {"at_s": passed, "package": package} | sample(page, devtools, pids, link)
            lines.write(json.dumps(row) + "\n")
            lines.flush()
            page.wait_for_timeout(1000 * PERIOD_S)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """First, settled and last values; slope after the first ten minutes in MB an hour (least squares)."""
    processes = [name for name in rows[0] if isinstance(rows[0][name], dict)]
    rows = [row for row in rows if all(row[name] for name in processes)]  # ranks may have ended before the last line
    at = np.array([row["at_s"] for row in rows])
    settled = at >= min(SETTLED_S, at[-1] / 2)
    series = {"browser_mb": [row["heap_mb"] + row["buffers_mb"] for row in rows], "nodes": [row["nodes"] for row in rows]}
    series["listeners"] = [row["listeners"] for row in rows]
    series |= {f"{name}_rss_mib": [row[name]["rss_mib"] for row in rows] for name in processes}
    told = {name: _trend(at, np.array(values, float), settled) for name, values in series.items()}
    seconds = at[-1] - at[0]
    cpu = {name: 100 * (rows[-1][name]["cpu_s"] - rows[0][name]["cpu_s"]) / seconds for name in processes}
    last = {name: rows[-1][name] for name in ("step", "frames", "frames_missing", "received_mb")}
    return told | last | {"cpu_percent": cpu, "minutes": at[-1] / 60, "samples": len(rows)}


def _trend(at: np.ndarray, values: np.ndarray, settled: np.ndarray) -> dict[str, float]:
    kept = values[settled]
    slope = np.polyfit(at[settled] / 3600, kept, 1)[0] if len(kept) > 2 else float("nan")
    return {"first": values[0], "settled": kept[0], "last": kept[-1], "least": kept.min(), "most": kept.max(), "slope_per_hour": slope}


def main() -> None:
    """Runs, or reads what a run has written so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--series", type=Path, default=Path("live_long.jsonl"))
    parser.add_argument("--read", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    said: dict[str, Any] = {}
    if not options.read:
        options.series.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder, lab.server(Path(folder)) as server, lab.browser() as browser:
            page = browser.new_page(viewport={"width": 1300, "height": 1400})
            said = follow(page, server, options.minutes, options.rate, options.series)
            said["server_limit_said"] = (Path(folder) / "server.log").read_text().count("data rate exceeded")
    found = summary([json.loads(line) for line in (options.read or options.series).read_text().splitlines()]) | said
    for name, value in found.items():
        print(f"{name:<20} {json.dumps(value) if isinstance(value, (dict, list, str)) else format(value, '.5g')}")
    if options.out:
        write(options.out, {"long": found})


if __name__ == "__main__":
    main()
