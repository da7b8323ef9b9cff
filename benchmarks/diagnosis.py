# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How often the diagnosis is right, and how long it takes.

usage: python benchmarks/diagnosis.py [captures] [simulated] [sampled] [injected] [clean] [live] [--runs N] [--ranks N] [--first SEED]
       [--seeds N] [--fault NAME ...] [--out FILE] [--keep FOLDER]

`sampled` are simulated runs on devices of which one step in 16 has rows of its collectives, `live` times from a fault's
beginning to its finding (`diagnosis_live.py`). `injected` rehearses each fault on 2 to 4 gloo ranks with sizes and ranks drawn at
random, `clean` trains healthy models on 2 (`clean_models.py`): an alarm of severity warning or above is false where it is no straggler
or the programs' own clocks show an imbalance of under 5 % over the run. Both need a machine that is otherwise idle: on a busy one a
rank that waits for a CPU is late. `--out` adds what was measured to a file, a piece for each call; `--keep` keeps the run
directories of clean runs with an alarm.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clean_models
from interleaved import write

import dtscope_jupyter as dts
from dtscope_jupyter import ingest, session, simulate
from dtscope_jupyter.diagnosis import Diagnosis, Finding, diagnose
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import RankError
from dtscope_jupyter.simulate.scenarios import draw

if TYPE_CHECKING:
    from collections.abc import Callable

BALANCED = 0.05

CAPTURES: dict[str, tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...]] = {
    "h200/ddp_healthy": (),
    "h200/fsdp_healthy": (),
    "h200/ddp_small_buckets": (),
    "h200/ddp_straggler": (("straggler", ("compute",), (2,)),),
    "h200/ddp_slow_loader": (("straggler", ("host_stall", "input"), (1,)),),
    "h200/ddp_no_p2p": (("slow_link", ("transport",), (0, 1, 2, 3)),),
    "h200/ddp_one_bucket": (("low_overlap", ("one_bucket",), (0, 1, 2, 3)),),
    "h200/hang_skip": (("hang", ("host_stuck", "never_called"), (3,)),),
    "nvrx_fr/gpu_error_1st": (("hang", ("device_stuck",), (12, 14)),),
    "nvrx_fr/lock_gil_1st": (("hang", ("host_stuck",), (9, 14)),),
}


def captures() -> dict[str, Any]:
    folder = Path(os.environ.get("DTSCOPE_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    rights = []
    print(f"{'capture':24} {'right':6} {'diagnose ms':>11}  found")
    for name, truth in CAPTURES.items():
        if not (folder / name).is_dir():
            print(f"{name:24} no such folder in {folder}")
            continue
        tables = ingest.read([folder / name]).tables
        begin = time.perf_counter()
        found = diagnose(tables)
        elapsed = (time.perf_counter() - begin) * 1e3
        said = [(each.kind, each.cause, each.ranks) for each in found.findings]
        right = len(said) == len(truth) and all(s[0] == t[0] and s[1] in t[1] and s[2] == t[2] for s, t in zip(said, truth, strict=True))
        rights.append(right)
        shown = "; ".join(f"{kind} ({cause}) {list(ranks)}" for kind, cause, ranks in said) or "nothing"
        print(f"{name:24} {'yes' if right else 'NO':6} {elapsed:11.0f}  {shown}")
    return {"captures": len(CAPTURES), "right": sum(rights)}


def simulated(runs: int, ranks: int, first: int, sampled: int = 1) -> dict[str, Any]:
    outcome: Counter[str] = Counter()
    wall, cpu = [], []
    for seed in range(first, first + runs):
        program, faults = draw(seed, ranks, _STEPS_SAMPLED) if sampled > 1 else draw(seed, ranks)
        if sampled > 1:
            program |= {"sampled": sampled, "device": program["device"] or "NVIDIA H200"}
            faults = [each for each in faults if each.kind in _SHOWN_SAMPLED]
        tables = simulate.run(faults=faults, **program)
        begin, used = time.perf_counter(), time.process_time()
        found = diagnose(tables)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
        verdict = judge(found, faults, ranks)
        outcome[verdict] += 1
        if verdict != "right":
            labels = [(each.kind, each.cause, each.ranks, round(each.size, 2), each.first, each.every) for each in faults]
            said = [(each.kind, each.cause, each.ranks, str(each.severity)) for each in found.findings]
            print(f"seed {seed}: {verdict}; {labels} -> {said}", flush=True)
    last = first + runs - 1
    print(f"{runs} labelled runs of {ranks} ranks, seeds {first} to {last}: {dict(outcome)}, right {outcome['right'] / runs:.1%}")
    print(f"diagnose(): median {sorted(wall)[runs // 2]:.2f} s, longest {max(wall):.2f} s; processor time at most {max(cpu):.2f} s")
    seconds = {"median_s": sorted(wall)[runs // 2], "longest_s": max(wall), "longest_cpu_s": max(cpu)}
    return {"ranks": ranks, "seeds": [first, last], "runs": runs, **outcome, **seconds}


_STEPS_SAMPLED = 80
_SHOWN_SAMPLED = ("straggler", "slow_link", "hang")
"""Of a nonfinite gradient between two looks the rank can't be known, and calls between them are not recorded."""
INJECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "straggler": ("straggler", ("compute",)),
    "host_stall": ("straggler", ("host_stall", "input")),
    "slow_link": ("slow_link", ("bandwidth", "latency", "unknown")),
    "nan": ("nonfinite", ("gradient",)),
    "desync": ("desync", ("values",)),
    "hang": ("hang", ("host_stuck",)),
    "copy": ("implicit_copy", ("non_contiguous",)),
}


def train(steps: int, width: int, layers: int, batch: int) -> None:
    """An ordinary DDP program."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*parts))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(torch.randn(batch, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def profiled(
    folder: Path, world_size: int, faults: list[dict[str, object]], model: tuple[Any, ...], program: Callable[..., None] = train
) -> Diagnosis:
    """The diagnosis of one recorded run; a run that the fault ends is opened all the same."""
    session.current().faults = faults
    try:
        return dts.profile(program, nprocs=world_size, args=model, directory=folder, timeout=60, on_hang="stop").diagnose()
    except (DtscopeError, RankError):
        return dts.open(folder).diagnose()


def injected(seeds: int, first: int, chosen: list[str]) -> dict[str, Any]:
    told_of: dict[str, Any] = {"seeds": [first, first + seeds - 1]}
    print(f"{'fault':12} {'runs':>4} {'kind, ranks':>11} {'cause':>5}")
    for fault, (kind, causes) in ((name, INJECTED[name]) for name in chosen):
        named = right = 0
        for seed in range(first, first + seeds):
            draw_from = random.Random(f"{fault}{seed}")
            world_size = draw_from.choice([2, 3, 4])
            rank = draw_from.randrange(world_size)
            model = (30, draw_from.choice([128, 256, 512]), draw_from.choice([2, 4]), 64)
            told: dict[str, object] = {
                "fault": fault,
                "rank": rank,
                "ms": draw_from.choice([30, 50, 80]),
                "step": draw_from.choice([5, 10]),
            }
            with tempfile.TemporaryDirectory() as folder:
                found = profiled(Path(folder) / "run", world_size, [told], model)
            wanted = set(range(world_size)) if fault == "slow_link" else {rank}
            fits = [each for each in found.findings if each.kind == kind and _names(each, wanted)]
            named, right = named + bool(fits), right + any(each.cause in causes for each in fits)
            if not any(each.cause in causes for each in fits):
                said = [(each.kind, each.cause, each.ranks, str(each.severity)) for each in found.findings]
                print(f"  seed {seed}, {world_size} ranks, model {model}, {told}: {said}")
        print(f"{fault:12} {seeds:4} {named / seeds:11.0%} {right / seeds:5.0%}", flush=True)
        told_of[fault] = {"runs": seeds, "kind_and_ranks": named, "cause": right}
    return told_of


def clean(runs: int, first: int, keep: Path | None) -> dict[str, Any]:
    """Counts alarms as true or false by the programs' own clocks over the whole run."""
    false = true = 0
    for seed in range(first, first + runs):
        program = clean_models.drawn(seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found = profiled(folder / "run", 2, [], (program, name), clean_models.train)
            loud = [each for each in found.findings if each.severity != "info"]
            own, cpu = clean_models.imbalance(folder)
            verdict = "false" if own < BALANCED or any(each.kind != "straggler" for each in loud) else "true"
            false, true = false + (bool(loud) and verdict == "false"), true + (bool(loud) and verdict == "true")
            for each in loud:
                there = clean_models.imbalance(folder, each.steps)
                clocks = f"imbalance {own:.1%} by own clocks, {cpu:.1%} of CPU time; {there[0]:.1%}, {there[1]:.1%} in its steps"
                print(f"seed {seed}, {program}: {verdict} alarm ({clocks}): {each.sentence}", flush=True)
            if loud and keep:
                shutil.copytree(folder, keep / str(seed), ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)
    print(f"{runs} clean runs of 2 gloo ranks, seeds {first} to {first + runs - 1}: {false} with a false alarm, {true} with a true one")
    return {"seeds": [first, first + runs - 1], "runs": runs, "false_alarms": false, "true_alarms": true}


def judge(found: Diagnosis, faults: list[simulate.Fault], ranks: int) -> str:
    """right: every fault named with its ranks and cause, and nothing else of severity warning or above.

    Where two sides of a desync are equally many, no majority tells which is wrong: both sides named is right.
    """
    rest = list(found.findings)
    causes = []
    for fault in faults:
        wanted = set(fault.ranks or range(ranks))
        fits = [each for each in rest if each.kind == fault.kind and _names(each, wanted)]
        if not fits:
            return "missed"
        rest.remove(fits[0])
        causes.append(fits[0].cause == fault.cause)
    if any(each.severity != "info" for each in rest):
        return "false alarm"
    return "right" if all(causes) else "wrong cause"


def _names(finding: Finding, wanted: set[int]) -> bool:
    tied = finding.kind == "desync" and len(finding.ranks) == 2 * len(wanted)
    return set(finding.ranks) == wanted or (tied and wanted < set(finding.ranks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", nargs="*", choices=["captures", "simulated", "sampled", "injected", "clean", "live"], default=["captures", "simulated"]
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--first", type=int, default=300_000, help="first seed; those below 200,000 were used before")
    parser.add_argument("--fault", nargs="*", default=list(INJECTED), help="of `injected`: these alone")
    parser.add_argument("--seeds", type=int, default=10, help="injected runs a fault; five times as many clean runs")
    parser.add_argument("--out", type=Path, help="JSON file to which what was measured is added")
    parser.add_argument("--keep", type=Path, help="folder for the run directories of clean runs with an alarm")
    options = parser.parse_args()
    for what in options.what:
        found = _measured(what, options)
        if options.out:
            _add(options.out, what, found)


def _measured(what: str, options: argparse.Namespace) -> dict[str, Any]:
    if what == "captures":
        return captures()
    if what in ("simulated", "sampled"):
        return simulated(options.runs, options.ranks, options.first, 16 if what == "sampled" else 1)
    if what == "injected":
        return injected(options.seeds, options.first, options.fault)
    if what == "clean":
        return clean(5 * options.seeds, options.first, options.keep)
    from diagnosis_live import live

    return live(options.seeds, options.first)


def _add(path: Path, what: str, found: dict[str, Any]) -> None:
    """Adds a piece to those that the file has of this table."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    kept.pop("machine", None)
    write(path, {**kept, what: [*kept.get(what, []), found]})


if __name__ == "__main__":
    main()
