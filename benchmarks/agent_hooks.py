# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What observing costs: microseconds a parameter hook, and step time with all collectors over without.

    python benchmarks/agent_hooks.py [--sets 6] [--rounds 8] [--models mlp conv transformer] [--json FILE]

Three pairs of gloo ranks of one thread take turns of 32 steps: plain, plain again (A/A) and observed; who has no turn is stopped, so
that nothing of an observed rank runs beside plain ones. A pair is some per cent quicker or slower than another for as long as it
lives, so that each figure is the mean of several sets of fresh pairs: of a set the median over its rounds of turns that follow each
other. The models: `mlp` has many parameters for its work (2.1 million, 96 rows a step), so that a pass over its gradients is dear;
`conv` (0.1 million, 48 images of 32 x 32) and `transformer` (0.4 million, 512 tokens) have few, as most have.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dtscope_jupyter import agent
from dtscope_jupyter.agent.parameters import Parameters
from dtscope_jupyter.agent.recorder import Recorder

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PAIRS = ("plain", "plain again", "observed")
FIGURES = ("wall", "cpu", "training_thread_cpu")
STEPS = 32
WARM = 288
"""Beyond the second comparison that the observer makes of itself."""
LAYERS, WIDTH, BATCH = 8, 512, 96


def mlp() -> tuple[torch.nn.Module, torch.Tensor]:
    """A network and a batch."""
    net = torch.nn.Sequential(*[layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())])
    return net, torch.randn(BATCH, WIDTH)


def conv() -> tuple[torch.nn.Module, torch.Tensor]:
    """A network and a batch."""
    widths = (3, 32, 32, 64, 64, 64)
    layers: list[torch.nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1, stride=1 + (before < after)), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.LazyLinear(10)), torch.randn(48, 3, 32, 32)


def transformer() -> tuple[torch.nn.Module, torch.Tensor]:
    """A network and a batch."""
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(8, 64, 128)


MODELS = {"mlp": mlp, "conv": conv, "transformer": transformer}


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def _rank(rank: int, pair: str, kind: str, folder: str, orders: Connection) -> None:
    torch.set_num_threads(1)
    armed = None
    if pair == "observed":
        own = Path(folder) / f"rank-{rank:04d}"
        own.mkdir()
        armed = agent.arm(agent.Config(folder=own, rank=rank, world_size=2, local_rank=rank))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    net, batch = MODELS[kind]()
    net(batch)
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while steps := orders.recv():
        start, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
        _train(model, optimizer, batch, steps)
        used = time.process_time() - cpu, time.thread_time() - thread
        orders.send(tuple(value / steps for value in (time.perf_counter() - start, *used)))
    if armed is not None:
        orders.send(armed.status() | {"flat_norm_every": armed.cost.next("flat_norm")[1]})
        armed.finish()
    dist.destroy_process_group()


class Pair:
    """Two ranks that train when told to."""

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        context = mp.get_context("spawn")
        folder.mkdir()
        self.pipes, self.processes = [], []
        for rank in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(target=_rank, args=(rank, name, kind, str(folder), theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def train(self, steps: int) -> tuple[float, float, float]:
        """Seconds a step of the slower rank; CPU seconds a step of all threads and of the training thread, both ranks together."""
        self._signal(signal.SIGCONT)
        for pipe in self.pipes:
            pipe.send(steps)
        walls, cpus, threads = zip(*(pipe.recv() for pipe in self.pipes), strict=True)
        self._signal(signal.SIGSTOP)
        return max(walls), sum(cpus), sum(threads)

    def end(self, *, observed: bool) -> list[dict[str, Any]]:
        """Ends the ranks; their own word on what they cost."""
        self._signal(signal.SIGCONT)
        for pipe in self.pipes:
            pipe.send(0)
        said = [pipe.recv() for pipe in self.pipes] if observed else []
        for process in self.processes:
            process.join(timeout=20)
        return said

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            assert process.pid is not None
            os.kill(process.pid, number)


def steps(sets: int, rounds: int, kind: str) -> dict[str, Any]:
    """Means over the sets."""
    found = [_set(rounds, kind) for _ in range(sets)]
    ratios = {
        f"{figure}_{name}": _mean([ratios[place][which] for _, ratios, _ in found])
        for place, figure in enumerate(FIGURES)
        for which, name in enumerate(("a_a", "observed", "observed_over_both"))
    }
    own = {name: [status[name] for _, _, status in found] for name in ("self_reported", "flat_norm_every")}
    return {"step_ms": statistics.fmean(ms for ms, _, _ in found), "sets": sets, "rounds": rounds, "steps_a_turn": STEPS, **ratios, **own}


def _set(rounds: int, kind: str) -> tuple[float, list[tuple[float, float, float]], dict[str, Any]]:
    """Of fresh pairs: ms of a plain step; of each figure A/A, observed over plain, over the mean of both plain; the observer's word."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = [Pair(name, kind, Path(folder) / str(number)) for number, name in enumerate(PAIRS)]
        for pair in pairs:
            pair.train(WARM)
        turns = []
        for turn in range(rounds):
            order = [(turn + shift) % len(pairs) for shift in range(len(pairs))]
            found = {number: pairs[number].train(STEPS) for number in order}
            turns.append([found[number] for number in range(len(pairs))])
        said = [pair.end(observed=name == "observed") for pair, name in zip(pairs, PAIRS, strict=True)][-1]
    ratios = []
    for place in range(len(FIGURES)):
        again, observed = (statistics.median(row[number][place] / row[0][place] for row in turns) for number in (1, 2))
        ratios.append((again, observed, 2 * observed / (1 + again)))
    own = {name: max(status[key] for status in said) for name, key in (("self_reported", "cost_ratio"), ("flat_norm_every",) * 2)}
    return 1e3 * statistics.median(row[0][0] for row in turns), ratios, own


def _mean(values: list[float]) -> dict[str, Any]:
    """With its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "error": error, "sets": values}


def parameter_hook(repeats: int = 60) -> dict[str, float]:
    """Microseconds a parameter that the hook adds to a backward, hooks on and off in turn; control: off against off."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(100)])
    batch = torch.randn(4, 16)
    count = sum(1 for _ in model.parameters())

    def backward() -> float:
        loss = model(batch).sum()
        start = time.perf_counter()
        loss.backward()
        return time.perf_counter() - start

    differences, controls = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            before = backward()
            parameters = Parameters(Recorder(Path(folder), 0, 2**20))
            parameters.add(model)
            with_hooks = backward()
            parameters.release()
            after = backward()
            differences.append((with_hooks - (before + after) / 2) / count * 1e6)
            controls.append((after - before) / count * 1e6)
    return {"us": statistics.median(differences), "control_us": statistics.median(controls), "parameters": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["mlp"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hook = parameter_hook()
    print(f"parameter hook     {hook['us']:6.2f} us   (control {hook['control_us']:+.2f} us; target 1.0 us)")
    found = {model: steps(options.sets, options.rounds, model) for model in options.models}
    for model, step in found.items():
        _show(model, step)
    if options.json:
        machine = {"torch": torch.__version__, "python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}
        options.json.write_text(json.dumps({"hook": hook, "steps": found, **machine}, indent=1))


def _show(model: str, step: dict[str, Any]) -> None:
    print(f"{model}: a step without us {step['step_ms']:6.1f} ms, a flat norm every {step['flat_norm_every']} steps")
    for figure in FIGURES:
        for name in ("a_a", "observed", "observed_over_both"):
            found = step[f"{figure}_{name}"]
            error = "" if found["error"] is None else f" +- {found['error']:.4f}"
            print(f"{figure:20} {name:18} {found['mean']:7.4f}{error}")
    print(f"cost by itself     {', '.join(f'{share:.2%}' for share in step['self_reported'])}")


if __name__ == "__main__":
    main()
