# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Our estimate of exposed communication, step by step, beside what Kineto saw of the same steps.

Kineto records the device alone, so that it hardly slows the host; a kernel belongs to the step in which its host launched it.
`kineto_ms` is comm without compute, as overlap is defined: also where a late host has launched nothing that could compute.
`waits_ms` of it is what the computing stream waits for: the next kernel is launched already, some communication ends in the gap before
it, and that is at least 20 us (other gaps lie between any two kernels, longer ones too where communication by PCIe delays launches).
Run: python benchmarks/gpu/exposed.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import cloudpickle
import numpy as np
import scenarios
from scenarios import Scenario

import dtscope_jupyter as dts
from dtscope_jupyter import ingest, intervals

if TYPE_CHECKING:
    import pandas as pd

SHORT_NS = 20_000
NEAR = 0.05, 0.5
"""The estimate is near where it is off by so much of the truth, or so many ms."""
CASES = {
    "ddp": Scenario(),
    "ddp, device bound": Scenario(size="470m-large"),
    "ddp, straggler, device bound": Scenario("straggler", size="470m-large"),
    "ddp, one bucket, device bound": Scenario(size="470m-large", ddp={"bucket_cap_mb": 100_000}),
    "ddp, no P2P, device bound": Scenario(size="470m-large", environment={"NCCL_P2P_DISABLE": "1"}),
    "fsdp2": Scenario(parallel="fsdp"),
    "fsdp2, device bound": Scenario(size="470m-large", parallel="fsdp"),
}


def truth(spans: pd.DataFrame) -> tuple[float, float, float]:
    """Comm without compute among the spans of one step, of it that which the computing stream waits for, and all comm, in ms."""
    comm, compute = spans[spans.kind == "comm"], spans[spans.kind == "compute"]
    flight, busy = (intervals.union(part.start_ns.to_numpy(), part.end_ns.to_numpy()) for part in (comm, compute))
    exposed = intervals.total(flight) - intervals.total(intervals.intersection(flight, busy))
    waits = intervals.intersection(flight, waited(compute, np.sort(comm.end_ns.to_numpy())))
    return exposed / 1e6, intervals.total(waits) / 1e6, intervals.total(flight) / 1e6


def waited(compute: pd.DataFrame, comm_ends: np.ndarray[Any, np.dtype[np.int64]]) -> intervals.Set:
    """Gaps of the stream with the most kernels in which some communication ends and the next kernel is launched already."""
    main = compute[compute.stream == compute.stream.mode()[0]].sort_values("start_ns")
    end = main.start_ns.to_numpy()[1:]
    begin = np.minimum(np.maximum(np.maximum.accumulate(main.end_ns.to_numpy())[:-1], main.launch_ns.to_numpy()[1:]), end)
    released = np.searchsorted(comm_ends, end, side="right") > np.searchsorted(comm_ends, begin, side="right")
    chosen = released & (end - begin >= SHORT_NS)
    return intervals.union(begin[chosen], end[chosen])


def steps_of(run: dts.Run, rank: int, trace: Path) -> list[dict[str, Any]]:
    """The steps of a rank that lie whole within the trace and whose exposed time we say."""
    spans = ingest.read([trace], rank=rank).tables["spans"].to_pandas()
    spans = spans[spans.kind.isin(["comm", "compute"])]
    rows = run.table("steps")
    rows = rows[(rows["rank"] == rank) & (rows.start_ns > spans.launch_ns.min()) & (rows.end_ns < spans.launch_ns.max())]
    found = []
    for row in rows[rows.exposed_ms.notna()].itertuples():
        inside = spans[spans.launch_ns.between(row.start_ns, row.end_ns)]
        if (inside.kind == "comm").any():
            (kineto, waits, comm), step_ms = truth(inside), (row.end_ns - row.start_ns) / 1e6
            ours = {"ours_ms": row.exposed_ms, "ours_comm_ms": None if isnan(row.comm_ms) else row.comm_ms}
            told = {"kineto_ms": kineto, "waits_ms": waits, "kineto_comm_ms": comm}
            found.append({"rank": rank, "step": int(row.step), "step_ms": step_ms, **ours, **told})
    return found


def errors(rows: list[dict[str, Any]], against: str) -> dict[str, float]:
    """How far ours is off: median and 90th percentile of the distance in ms, and the share of steps that are near."""
    off = [abs(row["ours_ms"] - row[against]) for row in rows]
    near = [distance <= max(NEAR[0] * row[against], NEAR[1]) for distance, row in zip(off, rows, strict=True)]
    return {"median_ms": statistics.median(off), "p90_ms": float(np.quantile(off, 0.9)), "near": statistics.fmean(near)}


def measure(name: str, world: int, steps: int, folder: Path) -> dict[str, Any]:
    """One case."""
    scenario, traces = CASES[name], folder / "traces"
    traces.mkdir()
    known = {field: getattr(scenario, field) for field in ("fault", "size", "parallel", "ddp", "environment")}
    run = dts.profile(
        scenarios.train, nprocs=world, args=(Scenario(**known, steps=steps), scenarios.HERE, str(traces)), backend="nccl",
        directory=folder / "run", timeout=120, budget=0.2 if scenario.parallel == "fsdp" else 0.01,
    )  # fmt: skip
    rows = [row for rank in run.ranks for row in steps_of(run, rank, traces / f"rank-{rank:04d}.json.gz")]
    medians = {key: statistics.median(row[key] for row in rows) for key in ("step_ms", "ours_ms", "kineto_ms", "waits_ms")}
    off = {against: errors(rows, f"{against}_ms") for against in ("kineto", "waits")}
    return {"case": name, "steps": len(rows), **medians, **off, "rows": rows}


def main() -> None:
    """Measures the cases and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--keep", type=Path, help="a folder in which runs and traces are left")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(scenarios)
    results: list[dict[str, Any]] = []
    for number, case in enumerate(options.cases):
        try:
            with tempfile.TemporaryDirectory() as temporary:
                folder = options.keep / str(number) if options.keep else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                results.append(measure(case, options.world, options.steps, folder))
        except Exception as error:  # noqa: BLE001 # one case's failure must not hide the others
            results.append({"case": case, "failure": f"{type(error).__name__}: {error}"})
        print({key: value for key, value in results[-1].items() if key != "rows"}, flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
