# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A look at a few values of a gradient."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.agent.glimpse import Glimpse

NOT_FINITE = st.sampled_from((math.nan, math.inf, -math.inf))
KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@given(st.sampled_from(KINDS), st.integers(1, 20), st.integers(1, 300), NOT_FINITE, st.data())
def test_a_row_that_is_not_finite_is_seen(kind: torch.dtype, rows: int, columns: int, value: float, data: st.DataObject) -> None:
    gradient = torch.ones(rows, columns, dtype=kind)
    look = Glimpse(gradient)
    assert look.finite(gradient)
    gradient[data.draw(st.integers(0, rows - 1))] = value
    assert not look.finite(gradient)


@given(st.sampled_from((torch.float32, torch.float64)), st.integers(1, 5000))
def test_all_values_of_a_small_one_count(kind: torch.dtype, size: int) -> None:
    gradient = torch.full((size,), torch.finfo(kind).max / 64, dtype=kind)
    assert Glimpse(gradient).finite(gradient)
    gradient[:: max(size // 32, 1)] = math.nan
    assert not Glimpse(gradient).finite(gradient)


@pytest.mark.parametrize("kind", KINDS)
def test_other_layouts(kind: torch.dtype) -> None:
    parameter = torch.ones(64, 32, dtype=kind)
    look = Glimpse(parameter)
    assert look.finite(torch.full((64, 32), math.nan, dtype=kind).to_sparse())
    assert not look.finite(torch.full((32, 64), math.nan, dtype=kind).t())
    assert not look.finite(torch.full((1, 1), math.nan, dtype=kind).expand(64, 32))


def test_nothing_to_look_at() -> None:
    assert Glimpse(torch.ones(0)).finite(torch.ones(0))
    assert Glimpse(torch.ones(3, dtype=torch.int64)).finite(torch.ones(3, dtype=torch.int64))
    assert Glimpse(torch.ones(3, dtype=torch.complex64)).finite(torch.full((3,), complex(math.nan)))
