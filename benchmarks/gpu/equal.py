# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Whether observing changes what is computed: losses and parameters with and without us, bit by bit.

Three sets of ranks train the same model from the same seed, with torch's deterministic algorithms: `bare` and `again`
without us (whether the training itself repeats), `ours` with every collector and a budget of 10 %, so that more steps are
sampled than by default. Run: python benchmarks/gpu/equal.py --out results.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from overhead import free_port

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CASES = ("ddp", "fsdp", "graph")
BUDGET = 0.1


def rank_main(pipe: Connection, rank: int, world: int, port: int, case: str, folder: str | None, size: str, steps: int) -> None:
    """One rank: sends its losses as hexadecimal numbers and the SHA-256 of its parameters."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }  # fmt: skip
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    agent = None
    if folder is not None:
        from dtscope_jupyter import agent as agent_room
        from dtscope_jupyter.agent import config as agent_config

        own = Path(folder) / f"rank-{rank:04d}"
        own.mkdir(mode=0o700, parents=True)
        every = frozenset(agent_config.COLLECTORS)
        agent = agent_room.arm(
            agent_room.Config(folder=own, rank=rank, world_size=world, local_rank=rank, budget=BUDGET, collect=every)
        )
    import gpt

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    losses, model = gpt.trained(size if torch.cuda.is_available() else "tiny", case, steps)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        held: Any = parameter.detach()
        digest.update((held.to_local() if hasattr(held, "to_local") else held).cpu().contiguous().numpy().tobytes())
    if agent is not None:
        agent.finish()
    pipe.send(([float(loss).hex() for loss in losses], digest.hexdigest()))
    dist.destroy_process_group()


def start(world: int, case: str, folder: str | None, size: str, steps: int) -> list[tuple[Any, Connection]]:
    """One set of ranks; (process, pipe) of each."""
    context = multiprocessing.get_context("forkserver")
    port, ranks = free_port(), []
    for rank in range(world):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=rank_main, args=(there, rank, world, port, case, folder, size, steps))
        process.start()
        there.close()
        ranks.append((process, here))
    return ranks


def answers(ranks: list[tuple[Any, Connection]], seconds: float) -> list[Any]:
    """What each rank sent; None of one that sent nothing in time."""
    got = []
    for process, pipe in ranks:
        try:
            got.append(pipe.recv() if pipe.poll(seconds) else None)
        except EOFError:
            got.append(None)
        process.join(20)
        process.kill()
    return got


def compare(world: int, case: str, size: str, steps: int, seconds: float) -> dict[str, Any]:
    """One case: the sets beside each other."""
    with tempfile.TemporaryDirectory() as folder:
        sets = {name: start(world, case, folder if name == "ours" else None, size, steps) for name in ("bare", "again", "ours")}
        got = {name: answers(ranks, seconds) for name, ranks in sets.items()}
        sampled = observed(folder)
    said = None not in got["bare"]
    return {
        "case": case, "size": size, "world_size": world, "steps": steps, "observed": sampled,
        "bare_ended": said, "repeats": said and got["again"] == got["bare"], "equal": said and got["ours"] == got["bare"],
        "losses": {name: [rank and [rank[0][0], rank[0][-1]] for rank in ranks] for name, ranks in got.items()},
    }  # fmt: skip


def observed(folder: str) -> dict[str, int]:
    """Rows that the observer wrote, and the steps in which collectives were timed: proof that it was there."""
    from dtscope_jupyter.store import BlockReader

    counts = {"steps": 0, "collectives": 0, "gradients": 0, "sampled_steps": 0, "windows": 0}
    for rank in Path(folder).glob("rank-*"):
        for table in ("steps", "collectives", "gradients"):
            rows = [row for batch in BlockReader(rank, table).batches() for row in batch.to_pylist()]
            counts[table] += len(rows)
            if table == "collectives":
                counts["sampled_steps"] += len({row["step"] for row in rows})
        counts["windows"] += len(list(rank.glob("trace-*")))
    return counts


def main() -> None:
    """Compares the cases and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--size", default="135m")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=90, help="how long to wait for a rank")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    multiprocessing.set_forkserver_preload(["torch", "torch.distributed"])
    results = []
    for case in options.cases:
        results.append(compare(options.world, case, options.size, options.steps, options.seconds))
        print({key: value for key, value in results[-1].items() if key != "losses"}, results[-1]["losses"]["ours"], flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
