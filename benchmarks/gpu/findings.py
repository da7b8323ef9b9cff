# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""From the moment a fault begins on real GPUs to the moment the live view has its finding.

A thread tails the run directory as the panels do and diagnoses as they do (`view.live_analysis`). Faults are those of
`scenarios.py`, from step `BEGINS` on; the rank itself writes when. Run: python benchmarks/gpu/findings.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import cloudpickle
import scenarios

import dtscope_jupyter as dts
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Interrupted, RankError
from dtscope_jupyter.view.live_analysis import LiveAnalysis
from dtscope_jupyter.view.live_tail import RunTail

CASES = ("straggler", "host_stall", "nan", "uneven_batch", "stopped", "item", "pageable", "killed", "healthy")
BEGINS, LASTS = 80, 70
_LIMIT = 4 * 2**20
_LOOK_S, _LINGER_S = 0.1, 2.5


class Seen(threading.Thread):
    """Tails a run; notes when each finding came first and last, by kind, cause, ranks and severity."""

    def __init__(self, run: Path) -> None:
        """Call `start`, and set `ended` to end it."""
        super().__init__(daemon=True)
        self.tail, self.analysis = RunTail(run), LiveAnalysis()
        self.found: dict[tuple[str, str, tuple[int, ...], str], list[float]] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        """Looks ten times a second."""
        while not self.ended.wait(_LOOK_S):
            self.tail.look()
            self.analysis.feed(self.tail.poll(_LIMIT))
            for each in self.analysis.findings or ():
                key = str(each["kind"]), str(each["cause"]), tuple(each["ranks"]), str(each["severity"])
                self.found[key] = [*self.found.get(key, [time.time()])[:1], time.time()]
        self.analysis.stop()


def right(expected: tuple[str, str | None, bool] | None, key: tuple[str, str, tuple[int, ...], str], rank: int) -> bool:
    """Whether the finding says what ought to be found."""
    kind, cause, ranks, severity = key
    if expected is None or severity == "info":
        return False
    return kind == expected[0] and expected[1] in (None, cause) and (not expected[2] or ranks == (rank,))


def measure(name: str, world: int, folder: Path) -> dict[str, Any]:
    """One fault: seconds to the right finding; all that was said, and how much before it began."""
    scenario, told = scenarios.SCENARIOS[name], folder / "begun"
    collect = scenarios.Scenario().collect
    scenario = replace(scenario, begins=BEGINS, steps=BEGINS + LASTS, told=str(told), collect=collect)
    seen, failure = Seen(folder / "run"), None
    seen.start()
    try:
        with suppress(Interrupted):
            dts.profile(
                scenarios.train, nprocs=world, args=(scenario, scenarios.HERE), backend="nccl", directory=folder / "run",
                collect=collect.split(","), on_hang="stop", timeout=60,
            )  # fmt: skip
    except (DtscopeError, RankError) as error:
        failure = str(error).splitlines()[-1][:200]
        time.sleep(_LINGER_S)
    finally:
        seen.ended.set()
        seen.join()
    begun = float(told.read_text()) if told.exists() else None
    return {"fault": name, **_times(seen, scenario, world, begun), "step_ms": _step_ms(folder / "run"), "failure": failure}


def _times(seen: Seen, scenario: scenarios.Scenario, world: int, begun: float | None) -> dict[str, Any]:
    since = {key: [round(at - begun, 2) for at in times] for key, times in seen.found.items()} if begun else {}
    said = [
        {"kind": key[0], "cause": key[1], "ranks": key[2], "severity": key[3], "first_s": times[0], "last_s": times[1]}
        for key, times in sorted(since.items(), key=lambda item: item[1])
    ]
    who = scenario.who % world
    good = [times[0] for key, times in since.items() if right(scenario.expected, key, who) or right(scenario.also, key, who)]
    alarms = sum(times[0] < 0 and key[3] != "info" for key, times in since.items())
    return {"right_s": min(good, default=None), "alarms_before": alarms, "said": said}


def _step_ms(folder: Path) -> dict[str, float | None]:
    rows = dts.open(folder).table("steps")
    lengths = (rows.end_ns - rows.start_ns) / 1e6
    healthy, faulty = lengths[rows.step < BEGINS], lengths[rows.step >= BEGINS]
    return {name: float(part.median()) if len(part) else None for name, part in (("healthy", healthy), ("faulty", faulty))}


def main() -> None:
    """Measures the faults and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no further fault begins")
    parser.add_argument("--keep", type=Path, help="a folder in which runs are left")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(scenarios)
    results: list[dict[str, Any]] = []
    start = time.perf_counter()
    for number, name in enumerate(options.only):
        if time.perf_counter() - start > options.limit:
            break
        try:
            with tempfile.TemporaryDirectory() as temporary:
                folder = options.keep / f"{number}-{name}" if options.keep else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                results.append(measure(name, options.world, folder))
        except Exception as error:  # noqa: BLE001 # one fault's failure must not hide the others
            results.append({"fault": name, "failure": f"{type(error).__name__}: {error}"})
        print(f"{time.perf_counter() - start:6.1f}", results[-1], flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
