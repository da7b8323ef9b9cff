# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The healthy programs by which false alarms are counted, and their own clocks."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def _loaded() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "clean_models.py"
    spec = importlib.util.spec_from_file_location("clean_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


clean_models = _loaded()


@pytest.mark.parametrize("name", list(clean_models.MODELS))
def test_each_model_gives_every_parameter_a_gradient(name: str) -> None:
    model, batch = clean_models.MODELS[name](2, 2, 16)
    model(*batch()).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_fifty_seeds_in_a_row_are_of_all_models_and_many_sizes() -> None:
    programs = [clean_models.drawn(seed) for seed in range(300_500, 300_550)]
    assert {each["model"] for each in programs} == set(clean_models.MODELS)
    assert len({(each["model"], each["size"], each["depth"], each["batch"]) for each in programs}) > 35


def test_a_step_takes_its_own_time_and_cpu_time() -> None:
    model, batch = clean_models.MODELS["mlp"](4, 2, 64)
    own, cpu = clean_models._step(model, torch.optim.SGD(model.parameters(), lr=0.1), batch)
    assert own > 0
    assert cpu > 0


def test_imbalance_is_of_the_slower_over_the_quicker_rank(tmp_path: Path) -> None:
    for rank, times in enumerate(([[90, 9], [10, 5], [10, 5]], [[1, 1], [10, 5], [12, 5]])):
        (tmp_path / f"times-{rank}.json").write_text(json.dumps(times))
    assert clean_models.imbalance(tmp_path) == pytest.approx((0.1, 0.0))
    assert clean_models.imbalance(tmp_path, (2, 7)) == pytest.approx((0.2, 0.0))
