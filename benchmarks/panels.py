# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How fast the panels draw in headless chromium: a map of 1,024 ranks x 10,000 steps, a timeline of 1,000,000 spans.

`python benchmarks/panels.py [--out FILE]`. Prints the time from data in the page to the picture, the frames while panning or
zooming, and the size of the scripts.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from interleaved import write

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dtscope_jupyter import schema  # noqa: E402 - the path comes first
from dtscope_jupyter.view import offline  # noqa: E402 - the path comes first
from dtscope_jupyter.view.live_pack import Message, of_tables  # noqa: E402 - the path comes first
from dtscope_jupyter.view.widget import STATIC  # noqa: E402 - the path comes first
from tests.browser import lab  # noqa: E402 - the path comes first

RANKS, STEPS, SPANS = 1024, 10_000, 1_000_000
ORIGIN = 1_764_000_000_000_000_000
STATUS: dict[str, Any] = {"title": "made", "world_size": None, "state": "finished", "live": False, "ranks": {}, "skipped": 0, "damaged": 0}
FRAMES = """async ([panel, keys, wheel]) => {
  const canvas = document.querySelector(`section[data-panel=${panel}] canvas`);
  const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  const press = key => canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  canvas.focus();
  for (const key of keys) { press(key); await frame(); }
  const times = [];
  const works = [];
  for (let i = 0; i < 60; i++) {
    const began = performance.now();
    let woke = 0;
    // Asked for before the panel asks, so called before it: from here to the task after the frame is what the frame costs.
    requestAnimationFrame(() => { woke = performance.now(); });
    if (wheel) canvas.dispatchEvent(new WheelEvent('wheel', {deltaX: i < 30 ? 30 : -30, bubbles: true, cancelable: true}));
    else press(i % 20 < 10 ? 'w' : 's');
    await frame();
    times.push(performance.now() - began);
    works.push(performance.now() - woke);
  }
  return [times, works].map(list => list.sort((a, b) => a - b));
}"""


def main() -> None:
    """Prints one line for each, and keeps them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder, lab.browser() as browser:
        for name, message, panel, keys, wheel in (
            ("map, 1,024 ranks x 10,000 steps", _map(), "map", "+++", True),
            ("timeline, 1,000,000 spans", _spans(), "timeline", "", False),
        ):
            path = _page(message, Path(folder) / "page.html")
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(path.as_uri())
            page.wait_for_function("() => performance.getEntriesByName('dtscope-first-draw').length", timeout=300_000)
            first = page.evaluate("() => performance.getEntriesByName('dtscope-first-draw')[0].duration")
            frames, works = page.evaluate(FRAMES, [panel, list(keys), wheel])
            results[name] = {"first_draw_ms": first, "frame_median_ms": frames[30], "frame_p95_ms": frames[57], "frames": len(frames)}
            results[name] |= {"work_median_ms": works[30], "work_p95_ms": works[57]}
            frame = f"frame median {frames[30]:.1f} ms, 95th percentile {frames[57]:.1f} ms"
            print(f"{name}: first draw {first:.0f} ms; {frame}, of which work {works[30]:.1f} and {works[57]:.1f} ms")
            page.close()
    results["bundle_gzipped_bytes"] = {name: len(gzip.compress((STATIC / name).read_bytes(), 9)) for name in ("widget.js", "standalone.js")}
    print(f"bundle: {results['bundle_gzipped_bytes']}")
    if options.out:
        write(options.out, results)


def _map() -> Message:
    rng = np.random.default_rng(0)
    cells = rng.gamma(1, 2, (RANKS, STEPS)).astype(np.float32)
    cells[:, STEPS // 2 :] += 27
    message = of_tables({}, {"status": STATUS})
    message.add_matrix("exposed", list(range(RANKS)), 0, cells)
    return message


def _spans() -> Message:
    ranks = 4
    each = SPANS // ranks
    place = np.tile(np.arange(each), ranks)
    start = ORIGIN + place * 4000
    comm = place % 5 == 0
    one = list(range(ranks))
    steps = {
        "rank": one,
        "step": [0] * ranks,
        "start_ns": [ORIGIN] * ranks,
        "end_ns": [ORIGIN + each * 4000] * ranks,
        "exposed_ms": [1.0] * ranks,
    }
    spans = {
        "rank": np.repeat(np.arange(ranks), each), "step": np.zeros(SPANS, int), "kind": np.where(comm, "comm", "compute"),
        "name": np.array([f"kernel_{i}" for i in range(50)])[place % 50], "start_ns": start,
        "end_ns": start + np.where(place % 7 == 0, 1500, 3200), "stream": np.where(comm, 20, 7),
    }  # fmt: skip
    return of_tables({"steps": _table("steps", steps), "spans": _table("spans", spans)}, {"status": STATUS})


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    arrow = schema.TABLES[name].arrow
    length = len(columns["rank"])
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(length, f.type) for f in arrow]
    return pa.Table.from_arrays(arrays, schema=arrow)


def _page(message: Message, path: Path) -> Path:
    data = base64.b64encode(gzip.compress(message.pack(), 1)).decode()
    path.write_text(offline.page("made", data))
    return path


if __name__ == "__main__":
    main()
