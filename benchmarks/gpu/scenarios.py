# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Healthy and faulty training on real GPUs, each diagnosed by us; and our estimates against Kineto's kernel times.

Run: python benchmarks/gpu/scenarios.py --out results.json [--only NAME ...] [--pictures FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dtscope_jupyter as dts

HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Scenario:
    """What is trained, what is wrong with it on rank `who` (modulo the world size), and what ought to be found, or nothing.

    `expected` is kind, cause and whether the finding names that rank; `also` is another finding that says the same.
    What is wrong begins with step `begins`; the rank writes the Unix time at which it does into the file `told`.
    """

    fault: str = ""
    who: int = 0
    size: str = "470m"
    parallel: str = "ddp"
    ddp: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    expected: tuple[str, str | None, bool] | None = None
    also: tuple[str, str | None, bool] | None = None
    steps: int = 40
    collect: str = "steps,collectives,gradients,host,devices"
    begins: int = 0
    told: str = ""


SPANS = "steps,collectives,gradients,host,devices,spans"
SCENARIOS = {
    "healthy": Scenario(collect=SPANS),
    "healthy_device_bound": Scenario(size="470m-large", collect=SPANS),
    "healthy_fsdp2": Scenario(parallel="fsdp", collect=SPANS),
    "healthy_fsdp2_device_bound": Scenario(size="470m-large", parallel="fsdp", collect=SPANS),
    "healthy_accumulation": Scenario("accumulation"),
    "healthy_buckets_1mb": Scenario(size="135m", ddp={"bucket_cap_mb": 1}),
    "healthy_buckets_100mb": Scenario(ddp={"bucket_cap_mb": 100, "gradient_as_bucket_view": True}),
    "healthy_compile": Scenario("compile", size="135m"),
    "healthy_graph": Scenario("graph", size="135m", steps=60),
    "one_bucket": Scenario(size="135m", ddp={"bucket_cap_mb": 100_000}, collect=SPANS, expected=("low_overlap", "one_bucket", False)),
    "one_bucket_device_bound": Scenario(
        size="470m-large", ddp={"bucket_cap_mb": 100_000}, collect=SPANS, expected=("low_overlap", "one_bucket", False)
    ),
    "straggler": Scenario("straggler", 2, collect=SPANS, expected=("straggler", "compute", True)),
    "straggler_device_bound": Scenario("straggler", 2, size="470m-large", collect=SPANS, expected=("straggler", "compute", True)),
    "host_stall": Scenario("host_stall", 1, expected=("straggler", "host_stall", True)),
    "uneven_batch": Scenario("uneven_batch", 3, expected=("straggler", "compute", True)),
    "item": Scenario("item", 1, size="135m", expected=("straggler", "host_sync", True)),
    "pageable": Scenario(
        "pageable", 2, expected=("straggler", "host_to_device_copy", True), also=("implicit_copy", "pageable_host_memory", True)
    ),
    "no_p2p": Scenario(environment={"NCCL_P2P_DISABLE": "1"}, collect=SPANS, expected=("slow_link", "transport", False)),
    "hog": Scenario("hog", 0, steps=150, expected=("slow_link", None, False)),
    "nan": Scenario("nan", 1, expected=("nonfinite", None, True)),
    "skipped": Scenario("skipped", 2, steps=25, expected=("desync", None, False)),
    "mismatched": Scenario("mismatched", 1, steps=25, expected=("desync", None, False)),
    "stopped": Scenario("stopped", 3, steps=25, expected=("hang", "host_stuck", True)),
    "killed": Scenario("killed", 1, steps=25, expected=("hang", "process_died", True)),
}  # fmt: skip


def train(scenario: Scenario, path: str, trace: str = "") -> None:  # noqa: C901, PLR0915 # sent to the ranks as one function
    """What a rank does; with `trace`, a folder, Kineto records the device from step 12 on."""
    sys.path.insert(0, path)
    os.environ.update(scenario.environment)
    import gpt
    import torch
    import torch.distributed as dist

    dist.init_process_group()
    rank = dist.get_rank()
    if scenario.fault == "graph":
        gpt.trained(scenario.size, "graph", scenario.steps)
        torch.cuda.synchronize()
        dist.destroy_process_group()
        return
    model, optimizer = gpt.build(scenario.size, scenario.parallel, **scenario.ddp)
    step_model: Any = torch.compile(model) if scenario.fault == "compile" else model
    draw, matrix = gpt.batches(scenario.size), torch.randn(8192, 8192, device=gpt.device(), dtype=torch.bfloat16)
    pageable = torch.randn(256, 2**20)

    chosen = rank == scenario.who % dist.get_world_size()

    def fault(number: int) -> Any:
        batch: Any = draw()
        if chosen and scenario.told and number == scenario.begins:
            Path(scenario.told).write_text(str(time.time()))
        match scenario.fault if chosen and number >= scenario.begins else "":
            case "host_stall":
                time.sleep(0.06)
            case "item":
                for _ in range(200):
                    matrix[:64, :64].sum().item()
            case "pageable":
                pageable.to(matrix.device)
            case "uneven_batch":
                batch = tuple(part.repeat(2, 1) for part in batch)
            case "stopped" if number == (scenario.begins or 15):
                os.kill(os.getpid(), signal.SIGSTOP)
            case "killed" if number == (scenario.begins or 15):
                os.kill(os.getpid(), signal.SIGKILL)
        return batch

    def extra() -> None:
        if scenario.fault == "straggler" and chosen and number >= scenario.begins:
            work = matrix
            for _ in range(20):
                work = (work @ matrix) * 1e-3

    if scenario.fault == "hog" and chosen:
        subprocess.Popen([sys.executable, "-c", HOG.replace("SECONDS", "2")])
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) if trace else None
    for number in range(scenario.steps):
        if profiler is not None and number == 12:
            profiler.start()
        if scenario.fault == "accumulation":
            with model.no_sync():  # type: ignore[operator]
                gpt.backward(step_model, draw())
        batch = fault(number)
        if scenario.fault == "skipped" and number == (scenario.begins or 14):
            total = torch.ones(1, device=matrix.device)
            if not chosen:
                dist.all_reduce(total)
            torch.cuda.synchronize()
        if scenario.fault == "mismatched" and number == (scenario.begins or 14):
            total = torch.ones(1000 + 24 * chosen, device=matrix.device)
            dist.all_reduce(total)
            torch.cuda.synchronize()
        spoilt = scenario.fault == "nan" and chosen and number == (scenario.begins or 20)
        handle = model.module.norm.register_forward_hook(lambda _m, _a, out: out * float("nan")) if spoilt else None  # type: ignore[union-attr]
        gpt.backward(step_model, batch, extra)
        if handle is not None:
            handle.remove()
        gpt.update(optimizer)
    torch.cuda.synchronize()
    if profiler is not None:
        profiler.stop()
        profiler.export_chrome_trace(f"{trace}/rank-{rank:04d}.json.gz")
    dist.destroy_process_group()


HOG = """
import ctypes, signal, time, torch
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
here, there = (torch.empty(2**30, dtype=torch.uint8, device=f"cuda:{number}") for number in range(2))
streams = [torch.cuda.Stream(device=number) for number in range(2)]
time.sleep(SECONDS)
while True:
    for target, source, stream in ((there, here, streams[0]), (here, there, streams[1])):
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
    for stream in streams:
        stream.synchronize()
"""
"""Copies between the first two GPUs without end, in a process of its own that ends with the one that started it."""


def estimates(run: Any) -> list[dict[str, Any]]:
    """Exposed comm and overlap of each profiled step: ours while it ran, and Kineto's of what the host launched in the same step."""
    from dtscope_jupyter import ingest
    from dtscope_jupyter.store import BlockReader

    rows = []
    for rank in run.ranks:
        folder = run.attempt.rank_path(rank)
        ours = {row["step"]: row for batch in BlockReader(folder, "steps").batches() for row in batch.to_pylist()}
        for trace in sorted(folder.glob("trace-*.json.gz")):
            spans = ingest.read([trace], rank=rank).tables["spans"].to_pandas()
            for number, row in ours.items():
                inside = spans[spans.launch_ns.between(row["start_ns"], row["end_ns"])]
                if len(inside) and row["disturbed"] and (inside.kind == "comm").any():
                    rows.append({"rank": rank, "step": number, **_both(row, inside)})
    return rows


def _both(row: dict[str, Any], spans: Any) -> dict[str, float]:
    from dtscope_jupyter import intervals

    def of(kind: str) -> intervals.Set:
        chosen = spans[spans.kind == kind]
        return intervals.union(chosen.start_ns.to_numpy(), chosen.end_ns.to_numpy())

    comm, compute = of("comm"), of("compute")
    both = intervals.total(intervals.intersection(comm, compute))
    return {
        "step_ms": (row["end_ns"] - row["start_ns"]) / 1e6,
        "exposed_ms": row["exposed_ms"], "exposed_ms_kineto": (intervals.total(comm) - both) / 1e6,
        "comm_ms": row["comm_ms"], "comm_ms_kineto": intervals.total(comm) / 1e6,
        "overlap_ms": row["overlap_ms"], "overlap_ms_kineto": both / 1e6,
    }  # fmt: skip


def run_one(name: str, world: int, folder: Path, pictures: Path | None) -> dict[str, Any]:
    """Runs a scenario; what was found, and whether it is what ought to be."""
    scenario, begin, failure = SCENARIOS[name], time.perf_counter(), None
    try:
        run = dts.profile(
            train, nprocs=world, args=(scenario, HERE), backend="nccl", directory=folder / name,
            collect=scenario.collect.split(","), on_hang="stop", timeout=45,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 # a killed rank is a failure of the run, and its record is what counts
        failure, run = f"{type(error).__name__}: {str(error).splitlines()[-1][:300]}", dts.open(folder / name)
    diagnosis = run.diagnose()
    found = [
        {
            "kind": str(f.kind), "cause": str(f.cause), "ranks": list(f.ranks),
            "severity": str(f.severity), "cost_ms": f.cost_ms, "text": str(f.sentence),
        }
        for f in diagnosis.findings
    ]
    if pictures is not None:
        bundle = run.report()._repr_mimebundle_()
        (pictures / f"{name}.png").write_bytes(_png(bundle))
    steps = run.table("steps")
    return {
        "scenario": name, "right": _right(scenario, world, found) and len(run.table("steps")) > 0, "found": found, "failure": failure,
        "step_ms": float(((steps.end_ns - steps.start_ns) / 1e6).median()) if len(steps) else None,
        "seconds": round(time.perf_counter() - begin, 1), "estimates": estimates(run), "known_exposed": known(run),
        "overlap": run.overlap().to_dict("records"),
    }  # fmt: skip


def _png(bundle: Any) -> bytes:
    import base64

    data = (bundle[0] if isinstance(bundle, tuple) else bundle)["image/png"]
    return base64.b64decode(data) if isinstance(data, str) else bytes(data)


def known(run: Any) -> list[dict[str, Any]]:
    """How many steps of each rank have an exposed time, and its median."""
    rows = run.table("steps").groupby("rank")["exposed_ms"].agg(["size", "count", "median"])
    return list(rows.reset_index().to_dict("records"))


def _right(scenario: Scenario, world: int, found: list[dict[str, Any]]) -> bool:
    loud = [f for f in found if f["severity"] != "info"]
    if scenario.expected is None:
        return not loud
    pool = found if scenario.expected[0] == "low_overlap" else loud[:1]
    return any(_says(f, each, scenario.who % world) for f in pool for each in (scenario.expected, scenario.also) if each is not None)


def _says(finding: dict[str, Any], expected: tuple[str, str | None, bool], rank: int) -> bool:
    kind, cause, named = expected
    return finding["kind"] == kind and cause in (None, finding["cause"]) and (not named or finding["ranks"] == [rank])


def main() -> None:
    """Runs the scenarios and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--repeat", type=int, default=1, help="how often the list is gone through")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no further scenario begins")
    parser.add_argument("--folder", type=Path, default=Path("dtscope-runs"))
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results, begin = [], time.perf_counter()
    for turn, name in ((turn, name) for turn in range(options.repeat) for name in options.only):
        if time.perf_counter() - begin > options.limit:
            break
        try:
            result = run_one(name, options.world, options.folder / f"{turn}", options.pictures)
        except Exception as error:  # noqa: BLE001 # one scenario's failure must not hide the others
            failure = f"{type(error).__name__}: {error}"
            result = {"scenario": name, "right": False, "found": [], "failure": failure, "step_ms": None, "seconds": 0, "estimates": []}
        results.append(result)
        top = result["found"][0]["text"] if result["found"] else "nothing"
        mark, step_ms = "ok " if result["right"] else "BAD", result["step_ms"] or 0
        print(f"{mark} {name:24} step {step_ms:7.2f} ms {result['seconds']:5} s  {top}  {result['failure'] or ''}", flush=True)
        for row in result["estimates"][:4]:
            print("      " + "  ".join(f"{key} {'-' if value is None else round(value, 3)}" for key, value in row.items()), flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    main()
