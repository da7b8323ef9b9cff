# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Healthy DDP programs of different models, each timing itself by its own clocks; used by `benchmarks/diagnosis.py clean`.

A rank's own time of a step = wall time of forward, loss, optimizer and batch, where nothing waits for another rank, and CPU time of the
training thread in the backward, whose wall time holds the wait for the others. Nothing of ours takes part in it: two clocks of
Python around the lines of the program, written to a file as the program ends.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Batch = tuple[torch.Tensor, ...]


def _mlp(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    width = 64 * size
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers), lambda: (torch.randn(batch, width),)


def _normed(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    width = 48 * size
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers), lambda: (torch.randn(batch, width),)


def _convolution(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    wide = 8 * size
    parts: list[nn.Module] = [nn.Conv2d(3, wide, 3, padding=1)]
    for _ in range(depth):
        parts += [nn.Conv2d(wide, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10)]
    return nn.Sequential(*parts), lambda: (torch.randn(max(batch // 16, 1), 3, 16, 16),)


def _groups(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    wide = 16 * size
    parts: list[nn.Module] = [nn.Conv1d(4, wide, 5, padding=2)]
    for _ in range(depth):
        parts += [nn.Conv1d(wide, wide, 5, padding=2, groups=4), nn.GroupNorm(4, wide), nn.SiLU()]
    return nn.Sequential(*parts), lambda: (torch.randn(max(batch // 16, 1), 4, 64),)


def _transformer(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    width = 32 * size
    block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    return nn.TransformerEncoder(block, depth, enable_nested_tensor=False), lambda: (torch.randn(max(batch // 32, 1), 32, width),)


def _language(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    width, words = 32 * size, 2000
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.RMSNorm(width), nn.SiLU())]
    model = nn.Sequential(nn.Embedding(words, width), *layers, nn.Linear(width, words))
    return model, lambda: (torch.randint(0, words, (max(batch // 16, 1), 16)),)


def _recurrent(size: int, depth: int, batch: int) -> tuple[torch.nn.Module, Callable[[], Batch]]:
    import torch
    from torch import nn

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.GRU(32, 16 * size, depth, batch_first=True)
            self.head = nn.Linear(16 * size, 10)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            told: torch.Tensor = self.head(self.recurrent(values)[0][:, -1])
            return told

    return Last(), lambda: (torch.randn(max(batch // 8, 1), 12, 32),)


MODELS: dict[str, Callable[[int, int, int], tuple[torch.nn.Module, Callable[[], Batch]]]] = {
    "mlp": _mlp, "layer_norm": _normed, "convolution": _convolution, "group_norm": _groups, "transformer": _transformer,
    "embedding": _language, "recurrent": _recurrent,
}  # fmt: skip


def drawn(seed: int) -> dict[str, Any]:
    """A program: model, its size and depth, batch, steps, optimizer and the options of DDP; the model is the seed's, by turns."""
    chance = random.Random(seed)
    return {
        "model": list(MODELS)[seed % len(MODELS)],
        "size": chance.choice([2, 4, 6, 8]),
        "depth": chance.choice([1, 2, 4]),
        "batch": chance.choice([16, 64, 128]),
        "steps": chance.choice([20, 30, 50]),
        "optimizer": chance.choice(["SGD", "AdamW"]),
        "static_graph": chance.random() < 0.2,
        "gradient_as_bucket_view": chance.random() < 0.3,
        "bucket_cap_mb": chance.choice([1, 25, 25]),
    }


def train(program: dict[str, Any], folder: str) -> None:
    """An ordinary DDP program; writes its own times, ms a step, to FOLDER/times-RANK.json."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    torch.manual_seed(0)
    model, batch = MODELS[program["model"]](program["size"], program["depth"], program["batch"])
    options = {name: program[name] for name in ("static_graph", "gradient_as_bucket_view", "bucket_cap_mb")}
    ddp = DistributedDataParallel(model, **options)
    optimizer = getattr(torch.optim, program["optimizer"])(ddp.parameters(), lr=0.001)
    times = [_step(ddp, optimizer, batch) for _ in range(program["steps"])]
    (Path(folder) / f"times-{dist.get_rank()}.json").write_text(json.dumps(times))
    dist.destroy_process_group()


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Callable[[], Batch]) -> tuple[float, float]:
    """One step; its own time and the CPU time of this thread, ms."""
    from time import perf_counter, thread_time

    begin, cpu = perf_counter(), thread_time()
    loss = model(*batch()).square().mean()
    forward, before = perf_counter() - begin, thread_time()
    loss.backward()
    backward, begin = thread_time() - before, perf_counter()
    optimizer.step()
    optimizer.zero_grad()
    return 1e3 * (forward + backward + perf_counter() - begin), 1e3 * (thread_time() - cpu)


def imbalance(folder: Path, steps: tuple[int, ...] = ()) -> tuple[float, float]:
    """How much longer the slower rank's own time is than the quicker one's, and that of CPU time; in `steps`, else all but the first."""
    times = np.array([json.loads(path.read_text()) for path in sorted(folder.glob("times-*.json"))])
    chosen = [step for step in steps if step < times.shape[1]] or list(range(1, times.shape[1]))
    own = times[:, chosen].sum(1)
    apart = own.max(0) / own.min(0) - 1
    return float(apart[0]), float(apart[1])
