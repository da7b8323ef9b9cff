# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Opening traces: time and memory beside HolisticTraceAnalysis (traceinsight), and how time grows with events.

    python benchmarks/ingest.py --hta PYTHON --data FOLDER     open + overlap + breakdown of real files, both tools in turn
    python benchmarks/ingest.py --hta PYTHON --synthetic       the same of 8 traces of 1,000,000 events; HTA takes minutes, so that
                                                               --keep FOLDER --tools ours (or hta) does one tool at a time, and
                                                               --saved FILE takes HTA's answer from the --out of an earlier run
    python benchmarks/ingest.py --growth                       seconds per event from 10^5 to 10^7 events
    ... --one BOTH                                             besides, both tools in turn in one process that has imported both

PYTHON is an interpreter of its own environment with traceinsight (no dependency of ours); every measurement with it is a fresh process.
BOTH is one that has traceinsight and what we read traces with (pyarrow, msgspec, isal); `one_` figures are of one process, in which
neither tool's imports count: `above_start` is the peak beyond what was resident as the turn began (one_process.py).
Time: the tool is imported first, then one whole run is timed, both tools in turn, with nothing watching them. Memory: a
run of its own that begins with nothing imported, as a user's does; `peak` is the kernel's own account of the process (VmHWM, shared
libraries included), or where helper processes took part the most that all held together (proportional set size), `own` the most
without pages of files (seen every 5 ms), `above_imports` what is beyond the tool's modules alone; `process_s` is such a run from start
to exit. Overlap and breakdown are computed under HTA's convention by both, over all tables built; that the figures agree is checked.
"""

from __future__ import annotations

import argparse
import json
import os
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
import pandas, pyarrow.compute, pyarrow.pandas_compat, pyarrow.vendored.version
import dtscope_jupyter as dts
from dtscope_jupyter import ingest, intervals, run
from dtscope_jupyter.analysis import breakdown, overlap
begin, before = time.perf_counter(), time.process_time()
run = dts.open(sys.argv[1])
overlap, breakdown = run.overlap(convention="hta"), run.breakdown(convention="hta")
seconds, processor = time.perf_counter() - begin, time.process_time() - before + sum(os.times()[2:4])
figures = [round(float(v), 2) for v in overlap.overlap_ratio * 100] + [round(float(v), 2) for v in breakdown.compute_pctg]
print(json.dumps({"seconds": seconds, "processor_s": processor, "figures": figures}))
"""
HTA = """
import json, logging, os, sys, time, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    begin, before = time.perf_counter(), time.process_time()
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    seconds, processor = time.perf_counter() - begin, time.process_time() - before + sum(os.times()[2:4])
    figures = [float(v) for v in overlap["comp_comm_overlap_pctg"]] + [float(v) for v in breakdown["compute_time_pctg"]]
    print(json.dumps({"seconds": seconds, "processor_s": processor, "figures": figures}))
"""
OURS_WHOLE = """
import sys
import dtscope_jupyter as dts
run = dts.open(sys.argv[1])
run.overlap(convention="hta"), run.breakdown(convention="hta")
"""
HTA_WHOLE = HTA
OURS_IMPORTS = OURS.split("begin,", maxsplit=1)[0]
HTA_IMPORTS = HTA.split("if __name__", maxsplit=1)[0]
PEAK = """
import json
told = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({"peak_mib": int(told["VmHWM"].split()[0]) / 1024}))
"""
READ = """
import json, sys, time
import pandas, pyarrow.compute, pyarrow.pandas_compat
from pathlib import Path
from dtscope_jupyter import ingest
begin = time.process_time()
ingest.read([Path(sys.argv[1])])
print(json.dumps({"seconds": time.process_time() - begin, "processor_s": 0, "figures": []}))
"""


class Timed:
    """Runs one tool in fresh processes that nobody watches; keeps its figures and its processor times in s."""

    def __init__(self, python: str, program: str, folder: Path) -> None:
        self._command = [python, "-c", program, str(folder)]
        self.figures: list[float] = []
        self.processor: list[float] = []

    def __call__(self) -> float:
        """Seconds of one run."""
        answer = subprocess.run(self._command, check=True, stdout=subprocess.PIPE, text=True).stdout
        told = json.loads(answer.strip().splitlines()[-1])
        self.figures = told["figures"]
        self.processor.append(told["processor_s"])
        return float(told["seconds"])


def memory(python: str, program: str, folder: Path, every: float = 0.005) -> dict[str, Any]:
    """One whole run: what the program printed, its peaks as `peak_mib` and `own_mib`, its time from start to exit as `process_s`."""
    begin = time.perf_counter()
    with subprocess.Popen([python, "-c", program + PEAK, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        done = threading.Event()
        most = {"together": 0.0, "own": 0.0}
        watch = threading.Thread(target=_watch, args=(psutil.Process(process.pid), done, most, every))
        watch.start()
        answer = process.stdout.read()
        done.set()
        watch.join()
    told: dict[str, Any] = {"process_s": time.perf_counter() - begin, "own_mib": most["own"]}
    for line in answer.strip().splitlines():
        told |= json.loads(line) if line.startswith("{") else {}
    return told | {"peak_mib": max(told["peak_mib"], most["together"])}


def _watch(tree: psutil.Process, done: threading.Event, most: dict[str, float], every: float) -> None:
    """The most that a process and its children held: all together where there are any, and of their own (no file's pages)."""
    while not done.wait(every):
        try:
            held = [_held(one.pid) for one in (tree, *tree.children(recursive=True))]
        except (psutil.NoSuchProcess, OSError):
            continue
        most["own"] = max(most["own"], sum(one.get("Pss_Anon", 0) + one.get("Pss_Shmem", 0) for one in held) / 1024)
        if len(held) > 1:
            most["together"] = max(most["together"], sum(one.get("Pss", 0) for one in held) / 1024)


def _held(pid: int) -> dict[str, int]:
    """Proportional set sizes of a process, KiB, by what they are; nothing of one that is about to go."""
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:])
    return {row[0].removesuffix(":"): int(row[1]) for row in rows}


def beside_hta(hta: str, folder: Path, rounds: int, runs: int) -> dict[str, Any]:
    """Both tools in turn on one folder; memory of so many `runs` each."""
    theirs, ours = Timed(hta, HTA, folder), Timed(sys.executable, OURS, folder)
    found = compare(theirs, ours, rounds)
    assert len(theirs.figures) == len(ours.figures)
    worst = max(abs(a - b) for a, b in zip(theirs.figures, ours.figures, strict=True))
    row: dict[str, Any] = {
        "hta_s": found.a,
        "ours_s": found.b,
        "times_faster": 1 / found.ratio,
        "times_less_processor": statistics.median(theirs.processor) / statistics.median(ours.processor),
        "a_a": found.noise,
        "rounds": rounds,
        "worst_difference_pct": worst,
        **memories(hta, folder, runs),
    }
    row["times_less_memory_with_imports"] = row["hta_peak_mib"] / row["ours_peak_mib"]
    row["times_less_memory_above_imports"] = row["hta_peak_above_imports_mib"] / row["ours_peak_above_imports_mib"]
    row["times_less_memory_without_file_pages"] = row["hta_own_mib"] / row["ours_own_mib"]
    print(f"{folder.name:<18}", "  ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    return row


def memories(hta: str, folder: Path, runs: int) -> dict[str, float]:
    """Peaks of both tools, whole and above their imports, MiB, and the time of whole processes; the median of some runs each."""
    row: dict[str, Any] = {}
    for name, python, whole, imports in (("hta", hta, HTA_WHOLE, HTA_IMPORTS), ("ours", sys.executable, OURS_WHOLE, OURS_IMPORTS)):
        measured, bare = ([memory(python, program, folder) for _ in range(runs)] for program in (whole, imports))
        for what in ("peak_mib", "own_mib", "process_s"):
            row[f"{name}_{what}"] = statistics.median(one[what] for one in measured)
        for what in ("peak", "own"):
            row[f"{name}_{what}_above_imports_mib"] = row[f"{name}_{what}_mib"] - statistics.median(one[f"{what}_mib"] for one in bare)
    return row


def in_one_process(python: str, folder: Path, turns: int) -> dict[str, Any]:
    """Both tools in turn in one process that has imported both: medians of their times and of their peaks beyond each turn's start."""
    script = Path(__file__).with_name("one_process.py")
    command = [python, str(script), str(folder), str(turns)]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    rows: dict[str, list[dict[str, Any]]] = {"hta": [], "ours": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        done, most, began = threading.Event(), {"together": 0.0}, 0.0
        watch = threading.Thread(target=_watch_helpers, args=(psutil.Process(process.pid), done, most))
        watch.start()
        for line in process.stdout:
            told = json.loads(line)
            if "begins" in told:
                most["together"], began = 0.0, told["together_mib"]
            else:
                told["above_start_mib"] = max(told["above_start_mib"], most["together"] - began)
                rows[told["ends"]].append(told)
                shown = {name: round(value, 3) for name, value in told.items() if isinstance(value, float)}
                print(f"  {told['ends']:<6}", shown, flush=True)
        done.set()
        watch.join()
    assert process.returncode == 0, f"{script.name} ended with status {process.returncode}"
    row = {
        f"one_{name}_{what}": statistics.median(each[what] for each in taken)
        for name, taken in rows.items()
        for what in ("seconds", "processor_s", "above_start_mib", "start_mib")
    }
    pairs = list(zip(rows["hta"], rows["ours"], strict=True))
    row |= {f"one_times_{name}": statistics.median(a[what] / b[what] for a, b in pairs) for name, what in _RATIOS.items()}
    worst = max(abs(x - y) for a, b in pairs for x, y in zip(a["figures"], b["figures"], strict=True))
    row |= {"one_turns": turns, "one_worst_difference_pct": worst}
    print(f"{folder.name:<18}", "  ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    return row


_RATIOS = {"faster": "seconds", "less_processor": "processor_s", "less_memory": "above_start_mib"}


def _watch_helpers(process: psutil.Process, done: threading.Event, most: dict[str, float], every: float = 0.01) -> None:
    """The most that a process and its helpers held together, MiB; while it has none nobody looks, so that turns are not slowed."""
    while not done.wait(every):
        try:
            if helpers := process.children(recursive=True):
                held = [_held(one.pid).get("Pss", 0) for one in (process, *helpers)]
                most["together"] = max(most["together"], sum(held) / 1024)
        except (psutil.NoSuchProcess, OSError):
            continue


def large(python: str, program: str, folder: Path, rounds: int) -> dict[str, Any]:
    """One tool on files that take it long: time and memory of the same runs, watched four times a second."""
    runs = [memory(python, program, folder, 0.25) for _ in range(rounds)]
    row = {what: statistics.median(run[what] for run in runs) for what in ("seconds", "processor_s", "peak_mib", "own_mib", "process_s")}
    row |= {"rounds": rounds, "figures": runs[-1]["figures"]}
    print(folder, row, flush=True)
    return row


def saved(file: Path, conditions: str) -> dict[str, Any]:
    """HTA's row of an earlier run, with when, on which machine and under what conditions it was taken."""
    told = json.loads(file.read_text(encoding="utf-8"))
    return {**told["hta"], "machine": told["hta"].get("machine", told["machine"]), "conditions": conditions}


def beside(hta: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """How many times less processor time and memory, and how many times faster at least: no tool ends before its work over all cores."""
    worst = max(abs(a - b) for a, b in zip(hta["figures"], ours["figures"], strict=True))
    return {
        "worst_difference_pct": worst,
        "times_less_processor": hta["processor_s"] / ours["processor_s"],
        "times_faster_at_least": hta["processor_s"] / (os.cpu_count() or 1) / ours["seconds"],
        "times_less_memory": hta["peak_mib"] / ours["peak_mib"],
    }


def written(folder: Path, ranks: int, events: int) -> Path:
    """A folder of synthetic traces, made where it is not there yet."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for rank in range(ranks):
            synthetic_trace.write(folder / f"rank{rank}.json.gz", events, rank, ranks)
    return folder


def growth(sizes: list[int], scratch: Path) -> dict[str, Any]:
    """Processor time an event of one trace of each size, read in one process."""
    rows = {}
    for size in sizes:
        folder = scratch / f"growth-{size}"
        folder.mkdir()
        events = synthetic_trace.write(folder / "rank0.json.gz", size, 0, 8)
        measured = Timed(sys.executable, READ, folder)
        seconds = min(measured() for _ in range(3 if size < 10**7 else 1))
        peak = memory(sys.executable, READ, folder)["peak_mib"]
        rows[str(events)] = {"us_per_event": seconds / events * 1e6, "processor_s": seconds, "peak_mib": peak}
        print(f"{events:>10} events", rows[str(events)], flush=True)
        shutil.rmtree(folder)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", help="interpreter with traceinsight")
    parser.add_argument("--data", type=Path, help="folder of folders of traces")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder of the synthetic traces, made once")
    parser.add_argument("--tools", nargs="*", default=["hta", "ours"], help="which of hta and ours; both need minutes")
    parser.add_argument("--saved", type=Path, help="an earlier --out of --synthetic with HTA's answer")
    parser.add_argument("--conditions", default="", help="under which HTA's answer was taken, to be kept with it")
    parser.add_argument("--one", help="interpreter with traceinsight and our dependencies")
    parser.add_argument("--turns", type=int, default=5, help="turns of each tool in one process")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--largest", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3, help="runs for memory, which vary little")
    parser.add_argument("--out", type=Path)
    return parser


def synthetic(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Both tools, or what was asked of them, on a folder of large synthetic traces."""
    folder = written(arguments.keep or scratch / "synthetic", arguments.ranks, arguments.events)
    results: dict[str, Any] = {}
    if arguments.saved:
        results["hta"] = saved(arguments.saved, arguments.conditions)
    elif "hta" in arguments.tools:
        results["hta"] = large(arguments.hta, HTA, folder, 1)
    if "ours" in arguments.tools:
        results["ours"] = large(sys.executable, OURS, folder, arguments.rounds)
    if arguments.one:
        results["one"] = in_one_process(arguments.one, folder, arguments.turns)
    if {"hta", "ours"} <= results.keys():
        results["beside"] = beside(results["hta"], results["ours"])
    return results


def main() -> None:
    """Runs what the arguments ask for."""
    arguments, results = _parser().parse_args(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.data:
            for name in ("trace_diff_test", "nccl_data", "sampled_pair"):
                results[name] = beside_hta(arguments.hta, arguments.data / name, arguments.rounds, arguments.runs) if arguments.hta else {}
                results[name] |= in_one_process(arguments.one, arguments.data / name, arguments.turns) if arguments.one else {}
        if arguments.synthetic:
            results |= synthetic(arguments, Path(scratch))
        if arguments.growth:
            results["growth"] = growth([size for size in (10**5, 10**6, 10**7) if size <= arguments.largest], Path(scratch))
    if arguments.out:
        write(arguments.out, results)


if __name__ == "__main__":
    main()
