# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Opening traces: time and memory beside HolisticTraceAnalysis (traceinsight), and how time grows with events.

    python benchmarks/ingest.py --hta PYTHON --data FOLDER     open + overlap + breakdown of real files, both tools in turn
    python benchmarks/ingest.py --hta PYTHON --synthetic       the same of 8 traces of 1,000,000 events
    python benchmarks/ingest.py --growth                       seconds per event from 10^5 to 10^7 events

PYTHON is an interpreter of its own environment with traceinsight (no dependency of ours). Every measurement is a fresh
process, that imports its tool first and then times one whole run; memory is the most that it and its children held
together (proportional set size, sampled every 20 ms; imports included, which `imports` tells). Overlap and breakdown
are computed under HTA's convention by both, over all tables built; that the figures agree is checked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import synthetic_trace
from interleaved import compare, write

OURS = """
import json, os, sys, time
import pandas, pyarrow.compute, pyarrow.pandas_compat
import dtscope_jupyter as dts
from dtscope_jupyter import ingest, intervals, run
from dtscope_jupyter.analysis import breakdown, overlap
print("ready", flush=True)
begin, before = time.perf_counter(), sum(os.times()[:4])
run = dts.open(sys.argv[1])
overlap, breakdown = run.overlap(convention="hta"), run.breakdown(convention="hta")
seconds = time.perf_counter() - begin
figures = [round(float(v), 2) for v in overlap.overlap_ratio * 100] + [round(float(v), 2) for v in breakdown.compute_pctg]
print(json.dumps({"seconds": seconds, "processor_s": sum(os.times()[:4]) - before, "figures": figures}))
"""
HTA = """
import json, logging, os, sys, time, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    print("ready", flush=True)
    begin, before = time.perf_counter(), sum(os.times()[:4])
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    seconds = time.perf_counter() - begin
    figures = [float(v) for v in overlap["comp_comm_overlap_pctg"]] + [float(v) for v in breakdown["compute_time_pctg"]]
    print(json.dumps({"seconds": seconds, "processor_s": sum(os.times()[:4]) - before, "figures": figures}))
"""
READ = """
import json, sys, time
import pandas, pyarrow.compute, pyarrow.pandas_compat
from pathlib import Path
from dtscope_jupyter import ingest
print("ready", flush=True)
begin = time.process_time()
ingest.read([Path(sys.argv[1])])
print(json.dumps({"seconds": time.process_time() - begin, "processor_s": 0, "figures": []}))
"""


class Measured:
    """Runs one tool in fresh processes; keeps its seconds, its figures and its peaks of memory in MiB."""

    def __init__(self, python: str, program: str, folder: Path) -> None:
        self._program = tempfile.NamedTemporaryFile("w", suffix=".py")  # noqa: SIM115 - lives as long as this
        self._program.write(program)
        self._program.flush()
        self._command = [python, self._program.name, str(folder)]
        self.figures: list[float] = []
        self.imports: list[float] = []
        self.peaks: list[float] = []
        self.processor: list[float] = []

    def __call__(self) -> float:
        """Seconds of one run."""
        with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            tree = psutil.Process(process.pid)
            self.imports.append(_held(tree))
            done = threading.Event()
            peak = [self.imports[-1]]
            watch = threading.Thread(target=_watch, args=(tree, done, peak))
            watch.start()
            answer = process.stdout.read()
            done.set()
            watch.join()
        told = json.loads(answer.strip().splitlines()[-1])
        self.figures = told["figures"]
        self.peaks.append(peak[0])
        self.processor.append(told["processor_s"])
        return float(told["seconds"])


def _watch(tree: psutil.Process, done: threading.Event, peak: list[float]) -> None:
    while not done.wait(0.02):
        peak[0] = max(peak[0], _held(tree))


def _held(tree: psutil.Process) -> float:
    total = 0
    try:
        for process in (tree, *tree.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.NoSuchProcess:
        pass
    return total / 2**20


def beside_hta(hta: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Both tools in turn on one folder."""
    theirs, ours = Measured(hta, HTA, folder), Measured(sys.executable, OURS, folder)
    found = compare(theirs, ours, rounds)
    assert len(theirs.figures) == len(ours.figures)
    worst = max(abs(a - b) for a, b in zip(theirs.figures, ours.figures, strict=True))
    row = {
        "hta_s": found.a,
        "ours_s": found.b,
        "times_faster": 1 / found.ratio,
        "times_less_processor": statistics.median(theirs.processor) / statistics.median(ours.processor),
        "a_a": found.noise,
        "hta_peak_mib": max(theirs.peaks),
        "ours_peak_mib": max(ours.peaks),
        "hta_imports_mib": max(theirs.imports),
        "ours_imports_mib": max(ours.imports),
        "worst_difference_pct": worst,
    }
    print(f"{folder.name:<18}", "  ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    return row


def growth(sizes: list[int], scratch: Path) -> dict[str, Any]:
    """Processor time an event of one trace of each size, read in one process."""
    rows = {}
    for size in sizes:
        folder = scratch / f"growth-{size}"
        folder.mkdir()
        events = synthetic_trace.write(folder / "rank0.json.gz", size, 0, 8)
        measured = Measured(sys.executable, READ, folder)
        seconds = min(measured() for _ in range(3 if size < 10**7 else 1))
        rows[str(events)] = {"us_per_event": seconds / events * 1e6, "processor_s": seconds, "peak_mib": max(measured.peaks)}
        print(f"{events:>10} events", rows[str(events)], flush=True)
        shutil.rmtree(folder)
    return rows


def main() -> None:
    """Runs what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", help="interpreter with traceinsight")
    parser.add_argument("--data", type=Path, help="folder of folders of traces")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--largest", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.data:
            for name in ("trace_diff_test", "nccl_data", "sampled_pair"):
                results[name] = beside_hta(arguments.hta, arguments.data / name, arguments.rounds)
        if arguments.synthetic:
            folder = Path(scratch) / "synthetic"
            folder.mkdir()
            begin = time.perf_counter()
            for rank in range(arguments.ranks):
                synthetic_trace.write(folder / f"rank{rank}.json.gz", arguments.events, rank, arguments.ranks)
            print(f"written in {time.perf_counter() - begin:.0f} s", flush=True)
            results["synthetic"] = beside_hta(arguments.hta, folder, arguments.rounds)
        if arguments.growth:
            results["growth"] = growth([size for size in (10**5, 10**6, 10**7) if size <= arguments.largest], Path(scratch))
    if arguments.out:
        write(arguments.out, results)


if __name__ == "__main__":
    main()
