# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients as pictures: largest magnitudes pooled to at most 64 x 64, and a count by power of ten."""

from __future__ import annotations

import torch

SIDE = 64
_LOW, _HIGH = -12, 3
_BINS = _HIGH - _LOW + 2


def pooled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as a matrix (its first dimension down), each cell the largest magnitude in it; NaN where one is."""
    matrix = tensor.detach().abs().float().reshape(tensor.shape[0] if tensor.dim() else 1, -1)
    height, width = (min(SIDE, side) for side in matrix.shape)
    finite = torch.nan_to_num(matrix, nan=torch.inf)
    cells = torch.nn.functional.adaptive_max_pool2d(finite[None, None], (height, width))[0, 0]
    return torch.where(torch.isinf(cells), torch.nan, cells)


def histogram(tensor: torch.Tensor) -> torch.Tensor:
    """Counts by floor(log10(magnitude)): zero and below 1e-12 first, then -12 to 3, at last above or not finite (18 bins)."""
    magnitude = tensor.detach().abs().float().flatten()
    power = torch.floor(torch.log10(magnitude)).clamp(_LOW - 1, _HIGH + 1) - (_LOW - 1)
    power = torch.where(torch.isfinite(magnitude), power, _BINS)
    return torch.bincount(power.long(), minlength=_BINS + 1)
