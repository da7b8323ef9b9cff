# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How often the diagnosis is right, and how long it takes.

usage: python benchmarks/diagnosis.py [captures] [simulated] [--runs N] [--ranks N] [--first SEED]
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from pathlib import Path

from dtscope_jupyter import ingest, simulate
from dtscope_jupyter.diagnosis import Diagnosis, Finding, diagnose
from dtscope_jupyter.simulate.scenarios import draw

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


def captures() -> None:
    folder = Path(os.environ.get("DTSCOPE_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
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
        print(
            f"{name:24} {'yes' if right else 'NO':6} {elapsed:11.0f}  {'; '.join(f'{k} ({c}) {list(r)}' for k, c, r in said) or 'nothing'}"
        )


def simulated(runs: int, ranks: int, first: int) -> None:
    outcome: Counter[str] = Counter()
    times = []
    for seed in range(first, first + runs):
        program, faults = draw(seed, ranks)
        tables = simulate.run(faults=faults, **program)
        begin = time.perf_counter()
        found = diagnose(tables)
        times.append(time.perf_counter() - begin)
        verdict = judge(found, faults, ranks)
        outcome[verdict] += 1
        if verdict != "right":
            labels = [(each.kind, each.cause, each.ranks, round(each.size, 2), each.first, each.every) for each in faults]
            said = [(each.kind, each.cause, each.ranks, str(each.severity)) for each in found.findings]
            print(f"seed {seed}: {verdict}; {labels} -> {said}")
    print(
        f"{runs} labelled runs of {ranks} ranks, seeds {first} to {first + runs - 1}: {dict(outcome)}, right {outcome['right'] / runs:.1%}"
    )
    print(f"diagnose(): median {sorted(times)[len(times) // 2]:.2f} s, longest {max(times):.2f} s")


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
    parser.add_argument("what", nargs="*", choices=["captures", "simulated"], default=["captures", "simulated"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--first", type=int, default=100_000, help="first seed; those below 10,000 were used for tuning")
    options = parser.parse_args()
    if "captures" in options.what:
        captures()
    if "simulated" in options.what:
        simulated(options.runs, options.ranks, options.first)


if __name__ == "__main__":
    main()
