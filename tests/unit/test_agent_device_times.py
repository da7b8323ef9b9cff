# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from dtscope_jupyter.agent.device_times import DeviceTimes


def on_stream(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """There is no device here: the program is on the CUDA stream of this number."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=number))


@pytest.mark.parametrize("main", [0, 7])
def test_only_what_the_computing_stream_waits_for_stops_it(main: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP2 gathers on a stream of its own; the default stream, on which most programs compute, has the number 0."""
    times = DeviceTimes()
    on_stream(monkeypatch, main)
    times.backward_begins()
    assert times._computes()
    on_stream(monkeypatch, 9)
    assert not times._computes()


def test_before_any_backward_every_stream_may_be_the_computing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    on_stream(monkeypatch, 9)
    assert DeviceTimes()._computes()
