# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Norms of what ranks hold in common, whatever each adds up at once."""

from __future__ import annotations

import math

import pytest
import torch

from dtscope_jupyter.agent import readings


def total(tensors: list[torch.Tensor]) -> float:
    """The flat norm, as it is written."""
    return math.sqrt(sum(value**2 for value in readings.norms(readings.pieces(tensors)).tolist()))


@pytest.mark.parametrize("elements", [1000, readings.PIECE, 6_500_000])
def test_one_buffer_and_its_parameters_have_one_norm(elements: int) -> None:
    buffer = torch.randn(elements, generator=torch.Generator().manual_seed(elements)) * 1e-3
    parameters = list(buffer.split([elements // 3, elements // 5, elements - elements // 3 - elements // 5]))
    exact = float(buffer.double().norm())
    assert total([buffer]) == pytest.approx(exact, rel=2e-6)
    assert total(parameters) == pytest.approx(exact, rel=2e-6)


def test_pieces_are_all_of_it_and_no_copy() -> None:
    whole = [torch.arange(3 * readings.PIECE + 1, dtype=torch.float32), torch.ones(4, 5)]
    pieces = readings.pieces(whole)
    assert sum(piece.numel() for piece in pieces) == sum(tensor.numel() for tensor in whole)
    assert {piece.untyped_storage().data_ptr() for piece in pieces} == {tensor.untyped_storage().data_ptr() for tensor in whole}
