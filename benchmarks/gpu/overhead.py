# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What observing costs: blocks of steps with and without us, in turn, on the same GPUs.

Three sets of ranks live side by side: `bare` and `again` without us (their ratio is the A/A noise) and
`ours`. One set trains at a time while the others wait, in an order that rotates, so that each round
gives one A/A and one A/B pair. A block's figure is the mean time of its steps between two device
synchronisations. Run: python benchmarks/gpu/overhead.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import naive

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CASES = {
    "ddp-470m": ("470m", "ddp", 0.01),
    "fsdp2-470m": ("470m", "fsdp", 0.01),
    "ddp-135m": ("135m", "ddp", 0.02),
    "ddp-470m-device": ("470m-12", "ddp", 0.01),
    "fsdp2-470m-device": ("470m-32", "fsdp", 0.01),
}


def rank_main(pipe: Connection, rank: int, world: int, port: int, case: str, folder: str | None, collect: frozenset[str] | None) -> None:
    """One rank: trains a block of steps whenever it is told to, until told `None`."""
    size, parallel, budget = CASES[case]
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    agent = None
    if folder is not None:
        from dtscope_jupyter import agent as agent_room

        own = Path(folder) / f"rank-{rank:04d}"
        own.mkdir(mode=0o700, parents=True)
        config = agent_room.Config(folder=own, rank=rank, world_size=world, local_rank=rank, budget=budget)
        agent = agent_room.arm(config if collect is None else replace(config, collect=collect))
    import gpt

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    model, optimizer = gpt.build(size if cuda else "tiny", parallel)
    draw = gpt.batches(size if cuda else "tiny")
    loss = torch.zeros(())
    while (order := pipe.recv()) is not None:
        steps, mode = order
        undo = naive.install(mode, model)
        gpt.step(model, optimizer, draw())
        naive.synchronise()
        begin = time.perf_counter()
        for _ in range(steps):
            loss = naive.step(mode, model, optimizer, draw())
        naive.synchronise()
        taken = (time.perf_counter() - begin) / steps
        pipe.send((taken, float(loss), device_bytes()))
        undo()
    if agent is not None:
        agent.finish()
    dist.destroy_process_group()


def device_bytes() -> dict[str, int]:
    """What this process has of its GPU: most bytes of tensors, and all that the driver counts; gives the allocator's cache back.

    Three sets of ranks share each GPU; the first step of a block, which is not timed, fetches the memory again.
    """
    import torch

    if not torch.cuda.is_available():
        return {}
    import pynvml

    tensors = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}")
    used = [row.usedGpuMemory for row in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if row.pid == os.getpid()]
    beyond = int(used[0]) - torch.cuda.memory_reserved() if used and used[0] else -1
    return {"tensors": tensors, "reserved": torch.cuda.memory_reserved(), "beyond_allocator": beyond}


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ranks:
    """One set of ranks that trains blocks on request."""

    def __init__(self, world: int, case: str, folder: str | None, collect: frozenset[str] | None = None) -> None:
        port = free_port()
        context = multiprocessing.get_context("forkserver")
        self.pipes, self.processes = [], []
        self.memory: list[dict[str, int]] = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(target=rank_main, args=(theirs, rank, world, port, case, folder, collect))
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def block(self, steps: int, mode: str = "bare") -> float:
        """Milliseconds a step, of the slowest rank."""
        for pipe in self.pipes:
            pipe.send((steps, mode))
        said = [pipe.recv() for pipe in self.pipes]
        self.memory = [each[2] for each in said]
        return 1e3 * max(float(each[0]) for each in said)

    def close(self) -> None:
        """Ends the ranks."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(60)


def reported_cost(folder: str) -> list[float]:
    """What the observer says of itself: its last cost ratio on each rank."""
    from dtscope_jupyter.store import BlockReader

    ratios = []
    for rank in sorted(Path(folder).glob("rank-*")):
        rows = [row for batch in BlockReader(rank, "notes").batches() for row in batch.to_pylist()]
        said = [row for row in rows if row["kind"] == "observer" and row["name"] == "cost_ratio"][-1:]
        ratios += [row["value"] for row in said]
        print("\n".join(f"  {rank.name}: {row['text']}" for row in said), flush=True)
    return ratios


def measure(case: str, world: int, rounds: int, steps: int, parts: list[str], modes: tuple[str, ...]) -> dict[str, Any]:
    """The blocks of one case and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        sets = {"bare": Ranks(world, case, None), "again": Ranks(world, case, None), "ours": Ranks(world, case, folder)}
        sets |= {f"only {part}": Ranks(world, case, f"{folder}/{part}", frozenset(part.split("+"))) for part in parts}
        names = list(sets)
        for ranks in sets.values():
            ranks.block(steps)
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            for k in range(len(names)):
                name = names[(turn + k) % len(names)]
                times[name].append(sets[name].block(steps))
            for mode in modes:
                times.setdefault(mode, []).append(sets["bare"].block(max(steps // 3, 3), mode))
        memory = {name: ranks.memory for name, ranks in sets.items()}
        for ranks in sets.values():
            ranks.close()
        reported = reported_cost(folder)
    result = {"case": case, "world_size": world, "rounds": rounds, "steps": steps, "ms": times, "reported_cost_ratio": reported}
    result["memory"] = memory
    result["ratios"] = {
        name: ratio([t / b for t, b in zip(values, times["bare"], strict=True)])
        for name, values in times.items()
        if name != "bare"
    }
    return result


def ratio(values: list[float]) -> dict[str, float]:
    """Median, quartiles and geometric mean of the pairs' ratios, and the mean's standard error."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    logs = [math.log(value) for value in values]
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return {"median": middle, "q1": low, "q3": high, "mean": math.exp(statistics.fmean(logs)), "error": error}


def main() -> None:
    """Measures the cases and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--cases", nargs="*", default=list(CASES)[:3])
    parser.add_argument("--parts", nargs="*", default=[], help="more sets, with these collectors alone, e.g. steps+collectives")
    parser.add_argument("--naive", action="store_true", help="hooks as one would write them at first, beside, on the small model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    multiprocessing.set_forkserver_preload(["torch", "torch.distributed"])
    results = []
    for case in options.cases:
        modes = naive.MODES if options.naive and case == "ddp-135m" else ()
        results.append(measure(case, options.world, options.rounds, options.steps, options.parts, modes))
        bare = statistics.median(results[-1]["ms"]["bare"])
        print(f"{case}: bare {bare:.2f} ms a step; reported cost {results[-1]['reported_cost_ratio']}", flush=True)
        for name, value in results[-1]["ratios"].items():
            spread = f"({value['q1']:.4f} to {value['q3']:.4f}), mean x{value['mean']:.4f} +- {value['error']:.4f}"
            print(f"  {name:24} x{value['median']:.4f}  {spread}", flush=True)
        print(f"  device memory, bytes: {results[-1]['memory']}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
