# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The models and the step that the GPU benchmarks train: a GPT under DDP or FSDP2 in bf16."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

VOCABULARY = 50304


@dataclass(frozen=True)
class Size:
    """Width, depth and batch of one model."""

    width: int
    depth: int
    heads: int
    batch: int
    length: int = 1024


SIZES = {
    "470m": Size(1280, 22, 20, 4),
    "470m-12": Size(1280, 22, 20, 12),
    "470m-large": Size(1280, 22, 20, 16),
    "470m-32": Size(1280, 22, 20, 32),
    "135m": Size(768, 12, 12, 1),
    "tiny": Size(128, 2, 4, 2, 64),
}


class Block(nn.Module):
    """One transformer block: attention, then a feed-forward net four times as wide."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, length, width) in and out."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x.add(self.down(functional.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Tokens (batch, length) in, logits (batch, length, vocabulary) out."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.depth))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Next-token logits."""
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def device() -> torch.device:
    """The GPU of the rank, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def build(size: str, parallel: str, **ddp: object) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model on this rank's device, wrapped by "ddp" or "fsdp", and its optimizer; a process group exists."""
    torch.manual_seed(0)
    model: nn.Module = GPT(SIZES[size]).to(device())
    if parallel == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block)
        fully_shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model, **ddp)  # type: ignore[arg-type]
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=torch.cuda.is_available())


def batches(size: str) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """A source of (tokens, targets), each (batch, length), different on each rank, the same for a seed."""
    shape = SIZES[size].batch, SIZES[size].length + 1
    where = device()
    generator = torch.Generator(device=where).manual_seed(1 + dist.get_rank())

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(VOCABULARY, shape, device=where, generator=generator)
        return tokens[:, :-1], tokens[:, 1:]

    return draw


def backward(
    model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], before_loss: Callable[[], None] | None = None
) -> torch.Tensor:
    """Forward and backward in bf16 autocast; returns the loss (on the device, not synchronised)."""
    tokens, targets = batch
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = model(tokens)
        if before_loss is not None:
            before_loss()
        loss = functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))
    loss.backward()
    return loss.detach()


def update(optimizer: torch.optim.Optimizer) -> None:
    """One optimizer step."""
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """One training step; returns the loss."""
    loss = backward(model, batch)
    update(optimizer)
    return loss


def captured(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> Callable[[tuple[torch.Tensor, torch.Tensor]], torch.Tensor]:
    """A step whose forward and backward are one CUDA graph, DDP's collectives in it; the optimizer runs as ever.

    To be called on the stream on which the model was built: DDP wants 11 steps on it before the capture.
    """
    held, stream = tuple(part.clone() for part in batch), torch.cuda.current_stream()
    for _ in range(11):
        backward(model, held)  # type: ignore[arg-type]
        optimizer.zero_grad(set_to_none=False)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = backward(model, held)  # type: ignore[arg-type]

    def replay(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        for place, part in zip(held, batch, strict=True):
            place.copy_(part)
        graph.replay()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.clone()

    return replay


def trained(size: str, parallel: str, steps: int) -> tuple[list[torch.Tensor], nn.Module]:
    """Losses of some steps of a new model, and the model; `parallel` is "ddp", "fsdp" or "graph" (DDP as a CUDA graph)."""
    if parallel != "graph":
        model, optimizer = build(size, parallel)
        draw = batches(size)
        return [step(model, optimizer, draw()) for _ in range(steps)], model
    with torch.cuda.stream(torch.cuda.Stream(device())):
        model, optimizer = build(size, "ddp")
        draw = batches(size)
        replay = captured(model, optimizer, draw())
        return [replay(draw()) for _ in range(steps)], model
