# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""From the moment a fault begins on real gloo ranks to the moment the live view has its finding, and until it goes again.

A thread tails the run directory as the panels do and diagnoses as they do (`view.live_analysis`). A fault begins where the rank's
note says so, or for a hang when the first peer enqueues the collective that stays open. Imported by `benchmarks/diagnosis.py live`.
"""

from __future__ import annotations

import random
import re
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import dtscope_jupyter as dts
from dtscope_jupyter import session, stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Interrupted, RankError
from dtscope_jupyter.view.live_analysis import LiveAnalysis
from dtscope_jupyter.view.live_tail import RunTail

FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "straggler": ("straggler", {"ms": 40}),
    "host_stall": ("straggler", {"ms": 40}),
    "nan": ("nonfinite", {}),
    "desync": ("desync", {}),
    "copy": ("implicit_copy", {"ms": 30}),
    "hang": ("hang", {}),
}
_LIMIT = 4 * 2**20
_BEGINS, _LASTS, _STEPS, _HEALED = 40, 60, 160, 400
_HEALS = ("straggler", "host_stall", "copy")
"""After these 400 steps follow, in which the finding must go; what is wrong with values stays."""
_LOOK_S, _GONE_S = 0.1, 1.0


class _Seen(threading.Thread):
    """Tails a run and notes when a finding of the kind came first and when it was last there."""

    def __init__(self, run: Path, kind: str) -> None:
        super().__init__(daemon=True)
        self.tail, self.analysis, self.kind = RunTail(run), LiveAnalysis(), kind
        self.first: float | None = None
        self.last: float | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(_LOOK_S):
            self.tail.look()
            self.analysis.feed(self.tail.poll(_LIMIT))
            if any(each["kind"] == self.kind for each in self.analysis.findings or ()):
                self.first = self.first or time.time()
                self.last = time.time()
        self.analysis.stop()


def train(steps: int) -> None:
    """An ordinary DDP program of about 15 ms a step."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(64, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
    dist.destroy_process_group()


def measure(name: str, seed: int) -> dict[str, float | None]:
    """Seconds from the fault's beginning to its finding, and from its end until the finding had gone; None where that never came."""
    kind, more = FAULTS[name]
    world = random.Random(f"{name}{seed}").choice([2, 3, 4])
    fault = {"fault": name, "rank": world - 1, "step": _BEGINS, "steps": _LASTS, **more}
    said: list[tuple[float, str]] = []
    stage.say, say = (lambda text: said.append((time.time(), text))), stage.say
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        session.current().faults = [fault]
        seen = _Seen(run, kind)
        seen.start()
        try:
            with suppress(DtscopeError, RankError, Interrupted):
                steps = _STEPS + (_HEALED if name in _HEALS else 0)
                dts.profile(train, nprocs=world, args=(steps,), directory=run, timeout=60, on_hang="stop")
        finally:
            seen.ended.set()
            seen.join()
            stage.say = say
        begin, end = _times(dts.open(run), name)
        last_row = float(dts.open(run).table("steps")["end_ns"].max()) / 1e9
    stacks = [at for at, text in said if re.search("Stacks and Flight Recorder", text)]
    return {
        "shown": seen.first - begin if seen.first and begin else None,
        "gone": seen.last - end if seen.last and end and seen.last < last_row - _GONE_S else None,
        "stacks": stacks[0] - begin if stacks and begin else None,
    }


def _times(run: Any, name: str) -> tuple[float | None, float | None]:
    """When the fault began, and when its last step ended, s of Unix time."""
    if name == "hang":
        calls = run.table("collectives")
        still_open = calls[calls["state"].isin(["scheduled", "started"])]["enqueue_ns"].dropna()
        return (float(still_open.min()) / 1e9 if len(still_open) else None), None
    notes, steps = run.table("notes"), run.table("steps")
    begun = notes[notes["kind"] == "fault"]["time_ns"].dropna()
    last = steps[steps["step"] == _BEGINS + _LASTS - 1]["end_ns"]
    return (float(begun.min()) / 1e9 if len(begun) else None), (float(last.max()) / 1e9 if len(last) else None)


def live(seeds: int, first: int) -> dict[str, Any]:
    """Prints the table and returns it, all in seconds."""
    table: dict[str, Any] = {"seeds": [first, first + seeds - 1]}
    print(f"{'fault':12} {'runs':>4} {'shown after, s: median':>22} {'longest':>8} {'gone after, s: median':>22} {'stacks after, s':>16}")
    for name in FAULTS:
        found = [measure(name, seed) for seed in range(first, first + seeds)]
        shown, gone, stacks = (sorted(each[key] for each in found if each[key] is not None) for key in ("shown", "gone", "stacks"))  # type: ignore[type-var]
        cells = [f"{shown[len(shown) // 2]:.2f}" if shown else "never", f"{shown[-1]:.2f}" if shown else "-"]
        cells += [f"{each[len(each) // 2]:.2f}" if each else "-" for each in (gone, stacks)]
        missed = seeds - len(shown)
        table[name] = {"runs": seeds, "never_shown": missed, "shown_s": shown, "gone_s": gone, "stacks_s": stacks}
        print(
            f"{name:12} {seeds:4} {cells[0]:>22} {cells[1]:>8} {cells[2]:>22} {cells[3]:>16}{f'  ({missed} never shown)' if missed else ''}"
        )
    return table
