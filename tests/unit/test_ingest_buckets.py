# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which collectives of a trace are DDP's buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ingest_files import event, kernel, launch, steps, trace, write

from dtscope_jupyter import ingest

if TYPE_CHECKING:
    from pathlib import Path

READY = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _reduced(at: float, number: int, around: str = READY, group: str = "0", name: str = "allreduce") -> list[dict[str, Any]]:
    told = {"Collective_name": name, "In_msg_nelems": 8, "Out_msg_nelems": 8, "Group_size": 2, "dtype": "Float"}
    told = {key.replace("_", " "): value for key, value in told.items()} | {"Process Group Name": group}
    return [
        event("cpu_op", around, at, 20, 5),
        event("cpu_op", "record_param_comms", at + 2, 15, 5, **told, External_id=number),
        launch(at + 5, number, 5),
        kernel(NCCL, at + 100, 10, number, 9, **told, External_id=number),
    ]


def _buckets(tmp_path: Path, events: list[dict[str, Any]]) -> list[int | None]:
    found = ingest.read([write(tmp_path / "rank0.json", trace([*steps(2), *events]))]).tables["collectives"]
    return list(found.sort_by("enqueue_ns")["bucket"].to_pylist())


def _forward(at: float) -> dict[str, Any]:
    return event("cpu_op", "DistributedDataParallel.forward", at, 50)


def test_they_are_numbered_anew_after_each_forward(tmp_path: Path) -> None:
    events = [_forward(0), *_reduced(100, 1), *_reduced(200, 2), _forward(1000), *_reduced(1100, 3), *_reduced(1200, 4), *_reduced(1300, 5)]
    assert _buckets(tmp_path, events) == [0, 1, 0, 1, 2]


def test_each_process_group_counts_its_own(tmp_path: Path) -> None:
    events = [_forward(0), *_reduced(100, 1), *_reduced(200, 2, group="1"), *_reduced(300, 3)]
    assert _buckets(tmp_path, events) == [0, 0, 1]


@pytest.mark.parametrize("other", [{"around": "SyncBatchNormBackward"}, {"name": "reduce_scatter"}])
def test_what_else_backward_launches_is_none(tmp_path: Path, other: dict[str, str]) -> None:
    events = [_forward(0), *_reduced(100, 1), *_reduced(200, 2, **other), *_reduced(300, 3)]
    assert _buckets(tmp_path, events) == [0, None, 1]


def test_without_ddp_there_is_no_bucket(tmp_path: Path) -> None:
    assert _buckets(tmp_path, [*_reduced(100, 1), *_reduced(200, 2)]) == [None, None]


@pytest.mark.parametrize(("name", "count"), [("ddp_healthy", 26), ("ddp_small_buckets", 35), ("ddp_one_bucket", 1), ("fsdp_healthy", 0)])
def test_the_captures_have_as_many_as_ddp_made(captures: Path, name: str, count: int) -> None:
    found = ingest.read(sorted((captures / "h200" / name).glob("rank*.json.gz"))).tables["collectives"].to_pandas()
    known = found[found.bucket.notna()]
    assert len(known) == 4 * 3 * count
    for _, one in known.sort_values("enqueue_ns").groupby(["rank", "step"]):
        assert one.bucket.tolist() == list(range(count))
    sizes = known.groupby("bucket").bytes.nunique()
    assert (sizes == 1).all(), "a bucket is of one size on all ranks and in all steps"
