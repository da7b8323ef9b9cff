# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The hooks that one would write first, to be measured beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = ("norm per parameter", "event per parameter", "full backward hooks", "autograd.grad per layer")


def synchronise() -> None:
    """Waits for the device, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def install(mode: str, model: torch.nn.Module) -> Callable[[], None]:
    """Puts the hooks of `mode` on the model; the result takes them away again."""
    kept: list[Any] = []
    handles: list[Any] = []

    def norm(parameter: torch.Tensor) -> None:
        kept.append(parameter.grad.norm())  # type: ignore[union-attr]
        if len(kept) > 2000:
            kept.clear()

    def event(_: torch.Tensor) -> None:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        kept.append(mark)
        if len(kept) > 2000:
            kept.clear()

    if mode == "norm per parameter":
        handles = [p.register_post_accumulate_grad_hook(norm) for p in model.parameters()]
    elif mode == "event per parameter" and torch.cuda.is_available():
        handles = [p.register_post_accumulate_grad_hook(event) for p in model.parameters()]
    elif mode == "full backward hooks":
        handles = [m.register_full_backward_hook(lambda *_: None) for m in model.modules()]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def step(mode: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Any, Any]) -> torch.Tensor:
    """One step; for "autograd.grad per layer" the gradients of each block are asked for on their own first."""
    import gpt

    if mode != "autograd.grad per layer":
        return gpt.step(model, optimizer, batch)
    tokens, targets = batch
    inner: Any = model.module
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = inner(tokens)
        loss = functional.cross_entropy(logits.view(-1, gpt.VOCABULARY), targets.reshape(-1))
    for block in inner.blocks:
        torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
    return gpt.step(model, optimizer, batch)
