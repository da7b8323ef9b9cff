# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from analysis_rows import at, collective, step, tables

from dtscope_jupyter.diagnosis import Finding, diagnose

STEPS, STEP_MS = 4, 100


def traced(operators: list[tuple[str, float, float]], kernel_ms: float) -> list[Finding]:
    """Two ranks; in each step the operators (name, start, end) one after another, each launching a kernel, and long compute."""
    spans: list[dict[str, Any]] = []
    calls = []
    for rank in (0, 1):
        for number in range(STEPS):
            begin, same = number * STEP_MS, {"rank": rank, "step": number, "thread": 1}
            spans.append(
                {**same, "kind": "compute", "name": "gemm", "start_ns": at(begin), "end_ns": at(begin + 60), "launch_ns": at(begin)}
            )
            for place, (name, start, end) in enumerate(operators):
                key = 1000 * number + place
                spans.append({**same, "kind": "cpu_op", "name": name, "start_ns": at(begin + start), "end_ns": at(begin + end)})
                if name.startswith("c10d"):
                    continue
                times = {"start_ns": at(begin + start), "end_ns": at(begin + end)}
                spans.append({**same, **times, "kind": "launch", "name": "cudaLaunchKernel", "correlation": key})
                spans.append({"rank": rank, "step": number, "kind": "compute", "name": "copy", "start_ns": at(begin + 61),
                              "end_ns": at(begin + 61 + kernel_ms), "correlation": key, "stream": 7})  # fmt: skip
            calls.append(collective(rank, number, begin + 75, begin + 80, step=number, bytes=4 * 2**20, state="completed"))
    steps = [step(rank, n, n * STEP_MS, (n + 1) * STEP_MS, compute_ms=90.0, exposed_ms=1.0) for rank in (0, 1) for n in range(STEPS)]
    found = diagnose(tables(steps=steps, collectives=calls, spans=spans)).findings
    return [each for each in found if each.kind == "implicit_copy"]


def test_a_cast_right_before_a_collective_is_named_with_its_device_time() -> None:
    (finding,) = traced([("aten::to", 10, 10.05), ("c10d::allreduce_", 10.1, 10.2)], kernel_ms=8)
    assert (finding.cause, finding.ranks) == ("dtype_cast", (0, 1))
    assert finding.evidence["ms_a_step"] == pytest.approx(8)
    assert finding.severity == "warning"


def test_a_cast_long_before_a_collective_is_the_models_own() -> None:
    assert traced([("aten::to", 5, 5.05), ("c10d::allreduce_", 10.1, 10.2)], kernel_ms=8) == []


def test_the_casts_of_autocasts_backward_are_the_models_own() -> None:
    operators = [("aten::to", 10, 10.05), ("torch::distributed::reducer::mul_out", 10.06, 10.08), ("c10d::allreduce_", 10.1, 10.2)]
    assert traced(operators, kernel_ms=1) == []


@pytest.mark.parametrize(("kernel_ms", "named"), [(8, True), (1, False)])
def test_bucket_copies_on_a_device_count_from_a_twentieth_of_a_step(kernel_ms: float, named: bool) -> None:  # noqa: FBT001
    found = traced([("torch::distributed::reducer::copy_bucket_to_grad", 10, 10.05)], kernel_ms)
    assert [each.cause for each in found] == (["bucket_copy"] if named else [])


def test_a_slice_whose_layout_differs_between_ranks_is_named() -> None:
    steps = [step(rank, n, 10 * n, 10 * n + 10, compute_ms=8.0) for rank in range(3) for n in range(4)]
    more = {"bytes": 40_000, "shape": "[100, 100]", "dtype": "float32", "line": "train.py:9", "state": "completed"}
    calls = [
        collective(rank, n, 10 * n + 5, 10 * n + 6, step=n, contiguous=rank != 1, process_group="tp", **more)
        for rank in range(3)
        for n in range(4)
    ]
    (finding,) = [each for each in diagnose(tables(steps=steps, collectives=calls)).findings if each.kind == "implicit_copy"]
    assert (finding.cause, finding.ranks) == ("non_contiguous", (1,))
    layout = finding.evidence["layout"]
    assert (layout["strided_ranks"], layout["contiguous_ranks"], layout["seq"]) == ([1], [0, 2], 0)
    assert "gets float32 [100, 100] at train.py:9, of which rank 1 gives a strided slice" in finding.sentence


def test_copies_of_sampled_steps_are_reckoned_by_those_steps() -> None:
    steps = [step(rank, n, 10 * n, 10 * n + 10, compute_ms=8.0) for rank in range(2) for n in range(16)]
    calls = [
        collective(rank, n, 10 * n + 5, 10 * n + 6, step=n, contiguous=False, bytes=40_000, state="completed")
        for rank in (0, 1)
        for n in (0, 8)
    ]
    (finding,) = [each for each in diagnose(tables(steps=steps, collectives=calls)).findings if each.kind == "implicit_copy"]
    assert finding.evidence["bytes_a_step"] == 40_000
