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
    return math.sqrt(sum(float(part.sum()) for part in readings.squares(tensors)))


@pytest.mark.parametrize("elements", [1000, readings.PIECE, 6_500_000])
def test_one_buffer_and_its_parameters_have_one_norm(elements: int) -> None:
    buffer = torch.randn(elements, generator=torch.Generator().manual_seed(elements)) * 1e-3
    parameters = list(buffer.split([elements // 3, elements // 5, elements - elements // 3 - elements // 5]))
    exact = float(buffer.double().norm())
    assert total([buffer]) == pytest.approx(exact, rel=2e-6)
    assert total(parameters) == pytest.approx(exact, rel=2e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_norm_is_that_of_every_kind_of_gradient(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(3)
    images = torch.randn(4, 3, 8, 8, generator=random).to(memory_format=torch.channels_last)
    tensors = [one.to(dtype) for one in (torch.randn(3 * readings.PIECE + 1, generator=random), images, images[:, :, ::2], torch.ones(()))]
    exact = math.sqrt(sum(float(one.double().square().sum()) for one in tensors))
    assert total(tensors) == pytest.approx(exact, rel=4e-3 if dtype.itemsize == 2 else 2e-6)
    assert total(tensors[:1]) == pytest.approx(float(tensors[0].double().norm()), rel=4e-3 if dtype.itemsize == 2 else 2e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_shows_wherever_it_lies(value: float) -> None:
    gradient = torch.ones(2 * readings.PIECE + 5)
    gradient[-3] = value
    assert not math.isfinite(total([torch.ones(7), gradient]))
    assert readings.squares([]) == []


class Copied:
    """The event after a copy, as torch.cuda.Event where there is no device."""

    def __init__(self) -> None:
        self.over = False

    def query(self) -> bool:
        return self.over


def landing() -> tuple[torch.Tensor, Copied]:
    return torch.empty(3), Copied()


def test_memory_into_which_a_device_copies_is_used_again_once_the_copy_has_ended() -> None:
    landings = readings.Landings()
    first = landings.take("norms", landing)
    landings.give_back("norms", first)
    second = landings.take("norms", landing)
    assert second[0] is not first[0], "a copy is under way into the first"
    first[1].over = True
    assert landings.take("norms", landing)[0] is first[0]
    assert landings.take("counts", landing)[0] is not first[0]


def test_a_reading_that_nobody_read_leaves_its_memory_and_event_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free an event waits for the driver's lock, in a hang for ever: the writing thread must not."""
    landings, reading = readings.Landings(), readings.Reading(torch.ones(3))
    left = landings.take("norms", landing)
    left[1].over = True
    monkeypatch.setattr(readings.Reading, "landings", landings)
    reading._key, reading._values, reading._event = "norms", *left  # type: ignore[assignment]
    del reading
    assert landings.take("norms", landing)[0] is left[0]
