# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Resident memory that observing adds to a rank, after 10,000 steps and from then on: two gloo ranks, a tiny model.

Run: python benchmarks/memory.py [--steps 10000] [--further 10000] [--out FILE]

Plain ranks first, then ranks armed with the default collectors; each in fresh processes. The growth from the first mark
to the last is what would go on for ever: target 64 MiB a rank, and flat.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from interleaved import write

RANKS = 2
MIB = 2**20
TARGET_MIB = 64


def resident() -> float:
    """MiB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def _rank(rank: int, folder: str, marks: list[int], observed: bool, answer: Any) -> None:  # noqa: FBT001 - spawn passes by place
    torch.set_num_threads(1)
    armed = None
    if observed:
        from dtscope_jupyter import agent

        own = Path(folder) / f"rank-{rank:04d}"
        own.mkdir(mode=0o700)
        armed = agent.arm(agent.Config(folder=own, rank=rank, world_size=RANKS, local_rank=rank))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(8, 64)
    seen: list[float] = []
    for step in range(marks[-1] + 1):
        if step in marks:
            seen.append(resident())
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    if armed is not None:
        armed.finish()
    dist.destroy_process_group()
    answer.put((rank, seen))


def measure(marks: list[int], *, observed: bool) -> dict[int, list[float]]:
    """MiB of each rank at the marks (steps)."""
    context = mp.get_context("spawn")
    answer = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_rank, args=(rank, folder, marks, observed, answer)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        found = dict(answer.get(timeout=1200) for _ in ranks)
        for process in ranks:
            process.join()
    return dict(sorted(found.items()))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--further", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    marks = [100, options.steps // 2, options.steps, options.steps + options.further // 2, options.steps + options.further]
    load = os.getloadavg()[0]
    found = {"plain": measure(marks, observed=False), "observed": measure(marks, observed=True)}
    print(f"{'resident MiB after steps':<26}" + "".join(f"{mark:>9,}" for mark in marks))
    for name, ranks in found.items():
        for rank, seen in ranks.items():
            print(f"{f'{name}, rank {rank}':<26}" + "".join(f"{value:9.1f}" for value in seen))
    at = marks.index(options.steps)
    added = max(found["observed"][rank][at] - found["plain"][rank][at] for rank in range(RANKS))
    growth = {name: max(seen[-1] - seen[at] for seen in ranks.values()) for name, ranks in found.items()}
    print(f"added after {options.steps:,} steps: {added:.1f} MiB a rank (target {TARGET_MIB}); growth over the next {options.further:,}: "
          f"plain {growth['plain']:+.1f}, observed {growth['observed']:+.1f} MiB; load {load:.1f}")  # fmt: skip
    if options.out:
        write(options.out, {"marks": marks, "resident_mib": found, "added_mib": added, "growth_mib": growth, "load": load})


if __name__ == "__main__":
    main()
