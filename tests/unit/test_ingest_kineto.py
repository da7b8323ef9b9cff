# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Kineto traces: what becomes of each kind of event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ingest_files import BASE, GLOO, STEP_US, event, kernel, launch, steps, trace, write

from dtscope_jupyter import ingest

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

NCCL: dict[str, Any] = {
    "Collective_name": "allreduce", "In_msg_nelems": 1000, "Out_msg_nelems": 1000, "Group_size": 2, "dtype": "BFloat16",
    "Process_Group_Name": "3", "Process_Group_Description": "mesh_dp", "Process_Group_Ranks": "[0, 1]",
}  # fmt: skip


def _read(folder: Path, events: list[dict[str, Any]], name: str = "t.json.gz", **around: Any) -> ingest.Imported:
    return ingest.read([write(folder / name, trace(events, **around))])


def _table(found: ingest.Imported, name: str) -> pd.DataFrame:
    frame: pd.DataFrame = found.tables[name].to_pandas()
    return frame


def _first(found: ingest.Imported, name: str, *columns: str) -> tuple[Any, ...]:
    row = found.tables[name].to_pylist()[0]
    return tuple(row[column] for column in columns)


@pytest.mark.parametrize(
    ("cat", "name", "kind"),
    [
        ("kernel", "void at::native::add<float>()", "compute"),
        ("Kernel", "sgemm", "compute"),
        ("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "comm"),
        ("kernel", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "comm"),
        ("kernel", "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "comm"),
        ("kernel", "void myNCCLThing()", "comm"),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "memcpy"),
        ("gpu_memset", "Memset (Device)", "memset"),
        ("cuda_runtime", "cudaLaunchKernel", "launch"),
        ("hip_runtime", "hipLaunchKernel", "launch"),
        ("cuda_driver", "cuLaunchKernelEx", "launch"),
        ("cuda_runtime", "cudaStreamSynchronize", "sync"),
        ("cuda_sync", "Stream Wait Event", "sync"),
        ("cpu_op", "aten::mm", "cpu_op"),
        ("user_annotation", "mine", "annotation"),
        ("gpu_user_annotation", "mine", "annotation"),
        ("python_function", "train.py(3): main", "python"),
    ],
)
def test_kinds_of_spans(tmp_path: Path, cat: str, name: str, kind: str) -> None:
    span = _table(_read(tmp_path, [event(cat, name, 10, 5, 7, correlation=1)]), "spans").iloc[0]
    assert (span.kind, span["name"], span.start_ns, span.end_ns) == (kind, name, BASE + 10_000, BASE + 15_000)
    on_device = cat in ("kernel", "Kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation")
    assert (span.stream if on_device else span.thread) == 7


@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH pinned"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("CopyHostToDevice", "HtoD"),
        ("something", None),
    ],
)
def test_copies_tell_their_way_and_memory(tmp_path: Path, name: str, copy: str | None) -> None:
    span = _table(_read(tmp_path, [event("gpu_memcpy", name, 0, 1, 7, bytes=4096)]), "spans").iloc[0]
    assert (span["copy"], span.bytes) == (copy, 4096) or (copy is None and span.isna()["copy"])


def test_flow_arrows_and_names_of_threads_leave_no_row(tmp_path: Path) -> None:
    others = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}, {"ph": "i", "name": "x", "ts": 1}]
    others += [
        {"ph": "s", "id": 1, "pid": 0, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g"},
        event("Trace", "PyTorch Profiler", 0, 9, "x"),
    ]
    assert len(_table(_read(tmp_path, [*others, event("cpu_op", "aten::mm", 0, 1)]), "spans")) == 1


def test_a_kernel_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    late = kernel("gemm", 2 * STEP_US + 50, 10, 5)
    found = _read(tmp_path, [*steps(3), launch(STEP_US - 10, 5), late, kernel("alone", STEP_US + 1, 10, 99)])
    spans = _table(found, "spans").set_index("name")
    assert (spans.step["gemm"], spans.step["alone"]) == (3, 4)
    assert spans.launch_ns["gemm"] == BASE + 990_000
    assert spans.isna().launch_ns["alone"]


def test_every_kernel_of_a_cuda_graph_has_its_launch(tmp_path: Path) -> None:
    graph = [kernel(f"k{n}", STEP_US + n * 20, 10, 7) for n in range(5)]
    found = _read(tmp_path, [*steps(2), event("cuda_runtime", "cudaGraphLaunch", 20, 5, correlation=7), *graph])
    spans = _table(found, "spans").query("kind == 'compute'")
    assert spans.step.tolist() == [3] * 5
    assert found.tables["spans"]["launch_ns"].drop_null().to_pylist() == [BASE + 20_000] * 5


def test_steps_sum_their_kernels(tmp_path: Path) -> None:
    events = [*steps(2), launch(10, 1), launch(20, 2), launch(30, 3), launch(STEP_US + 5, 4)]
    events += [kernel("gemm", 100, 100, 1), kernel("gemm", 150, 100, 2, 8), kernel("ncclDevKernel_AllReduce", 200, 100, 3, 9)]
    events += [kernel("ncclDevKernel_AllReduce", STEP_US + 100, 40, 4, 9)]
    steps_ = _table(_read(tmp_path, events), "steps").set_index("step")
    sums = steps_[["compute_ms", "comm_ms", "overlap_ms", "exposed_ms"]].to_numpy()
    assert sums == pytest.approx(np.array([[0.15, 0.1, 0.05, 0.05], [0, 0.04, 0, 0.04]]))
    assert steps_.start_ns.tolist() == [BASE, BASE + 1_000_000]


def test_phases_follow_autograd_and_the_optimizer(tmp_path: Path) -> None:
    events = [*steps(1), event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 300, 100, 2)]
    events += [event("cpu_op", "autograd::engine::evaluate_function: AddBackward0", 500, 50, 2)]
    events += [event("user_annotation", "Optimizer.step#AdamW.step", 700, 100)]
    for number, at in enumerate((10, 350, 450, 600, 750, 990)):
        events += [launch(at, number), kernel(f"k{at}", 5000 + number, 1, number)]
    found = _read(tmp_path, events)
    phase = _table(found, "spans").query("kind == 'compute'").set_index("name").phase
    assert phase.astype(object).fillna("-").to_dict() == {
        "k10": "forward", "k350": "backward", "k450": "backward", "k600": "-", "k750": "optimizer", "k990": "-",
    }  # fmt: skip
    step = _table(found, "steps").iloc[0]
    assert (step.backward_start_ns - BASE, step.backward_end_ns - BASE) == (300_000, 550_000)
    assert (step.optimizer_start_ns - BASE, step.optimizer_end_ns - BASE) == (700_000, 800_000)


def test_a_collective_by_the_kernels_own_arguments(tmp_path: Path) -> None:
    found = _read(tmp_path, [*steps(1), launch(40, 9), kernel("ncclDevKernel_AllReduce_Sum_bf16", 100, 50, 9, 20, Seq=12, **NCCL)])
    told = _first(found, "collectives", "operation", "bytes", "dtype", "process_group", "group_size")
    assert told == ("all_reduce", 2000, "bfloat16", "3", 2)
    assert _first(found, "collectives", "seq", "stream", "state", "source", "step") == (12, 20, "completed", "profiler", 3)
    assert _first(found, "collectives", "enqueue_ns", "start_ns", "end_ns") == (BASE + 40_000, BASE + 100_000, BASE + 150_000)
    group = _table(found, "groups").iloc[0]
    assert (group.process_group, group.description, group.ranks.tolist()) == ("3", "mesh_dp", [0, 1])


def test_a_collective_by_its_cpu_event_through_the_external_id(tmp_path: Path) -> None:
    call = event(
        "cpu_op", "record_param_comms", 30, 20, External_id=5, **(NCCL | {"Collective_name": "_allgather_base", "Out_msg_nelems": 2000})
    )
    found = _read(tmp_path, [call, launch(40, 9), kernel("ncclDevKernel_Generic_1()", 100, 50, 9, External_id=5)])
    row = _table(found, "collectives").iloc[0]
    assert (row.operation, row.bytes, row.process_group, row.enqueue_ns) == ("all_gather", 4000, "3", BASE + 30_000)


def test_a_trace_of_torch_1_8(tmp_path: Path) -> None:
    """Threads and streams are texts, categories are capitalised, kernels have an external id in small letters."""
    call = event("Operator", "record_param_comms", 30, 20, "123", External_id=5, **NCCL)
    launched = event("Runtime", "cudaLaunchKernel", 40, 5, "123", correlation=9)
    ran = event("Kernel", "ncclAllReduceRingLLKernel_sum_f32(ncclColl)", 100, 50, "stream 7", correlation=9, stream=7, external_id=5)
    copied = event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 160, 10, "stream 20", correlation=10, external_id=0)
    unnamed = event("Operator", "aten::mm", 1, 2, "Trace")
    spans = _table(found := _read(tmp_path, [call, launched, ran, copied, unnamed]), "spans").sort_values("start_ns")
    assert spans["kind"].tolist() == ["cpu_op", "cpu_op", "launch", "comm", "memcpy"]
    assert spans["thread"].fillna(-1).tolist() == [-1, 123, 123, -1, -1]
    assert spans["stream"].fillna(-1).tolist() == [-1, -1, -1, 7, 20]
    assert _first(found, "collectives", "operation", "process_group", "enqueue_ns", "stream") == ("all_reduce", "3", BASE + 30_000, 7)


def test_a_collective_by_what_its_launch_was_in(tmp_path: Path) -> None:
    inside = event("user_annotation", "nccl:reduce", 30, 20, 4, Input_Dims=[[10, 3]], Input_type=["float"])
    other = event("user_annotation", "nccl:broadcast", 30, 20, 5, Input_Dims=[[9]], Input_type=["float"])
    found = _read(tmp_path, [inside, other, launch(40, 9, 4), kernel("ncclKernel_Reduce_RING_LL_Sum_float()", 100, 50, 9)])
    told = _first(found, "collectives", "operation", "bytes", "dtype", "shape", "process_group")
    assert told == ("reduce", 120, "float32", "[10, 3]", "unknown")


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "all_gather"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclDevKernel_SendRecv(x)", "send_recv"),
        ("ncclDevKernel_Generic(x)", "unknown"),
    ],
)
def test_a_collective_by_the_kernels_name_alone(tmp_path: Path, name: str, operation: str) -> None:
    assert _table(_read(tmp_path, [kernel(name, 1, 1, 1)]), "collectives").operation.tolist() == [operation]


@pytest.mark.parametrize(
    ("collective", "operation", "size"),
    [
        ("allreduce", "all_reduce", 400), ("_allgather_base", "all_gather", 800), ("_reduce_scatter_base", "reduce_scatter", 400),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter", 400), ("alltoallv", "all_to_all", 800), ("all_to_allv", "all_to_all", 800),
        ("broadcast", "broadcast", 400), ("send", "send", 400), ("recv", "recv", 800), ("allreduce_coalesced", "all_reduce", 400),
    ],
)  # fmt: skip
def test_bytes_as_nccl_tests_counts_them(tmp_path: Path, collective: str, operation: str, size: int) -> None:
    told = NCCL | {"Collective_name": collective, "In_msg_nelems": 100, "Out_msg_nelems": 200, "dtype": "Float"}
    row = _table(_read(tmp_path, [kernel("ncclDevKernel_Generic", 1, 1, 1, **told)]), "collectives").iloc[0]
    assert (row.operation, row.bytes) == (operation, size)


def test_groups_come_from_the_configuration_too(tmp_path: Path) -> None:
    info = {"rank": 1, "world_size": 4, "backend": "nccl", "pg_config": [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]},
        {"pg_name": "3", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [1, 3]},
    ]}  # fmt: skip
    found = _read(tmp_path, [kernel("ncclDevKernel_AllReduce", 1, 1, 1, **NCCL)], distributedInfo=info)
    groups = _table(found, "groups").set_index("process_group")
    assert groups.ranks["3"].tolist() == [1, 3]
    assert (found.world_size, set(groups["rank"])) == (4, {1})


def test_gloo_collectives_are_enqueued_by_their_c10d_calls() -> None:
    found = ingest.read([GLOO / "rank0.json.gz", GLOO / "rank1.json.gz"])
    frame = _table(found, "collectives").query("rank == 0").sort_values("enqueue_ns")
    assert frame.operation.tolist() == ["all_reduce"] * 4 + ["reduce_scatter", "all_gather", "broadcast", "barrier"]
    assert frame.bytes.iloc[:7].tolist() == [65792, 66560, 65792, 66560, 64, 32, 64]
    assert (frame.enqueue_ns < frame.start_ns).all()
    assert frame.phase.iloc[:4].tolist() == ["backward"] * 4
    assert set(frame.group_size) == {2}
    spans = _table(found, "spans")
    assert (spans[spans.kind == "comm"].operation.notna()).all()
    assert len(spans[spans.kind == "comm"]) == len(_table(found, "collectives")) == 16
    step = _table(found, "steps")
    assert (step.comm_ms > 0).all()
    assert (step.compute_ms > 0).all()
    assert step.exposed_ms.to_numpy() == pytest.approx((step.comm_ms - step.overlap_ms).to_numpy())


@pytest.mark.parametrize(("thread", "line"), [(1, "/home/me/train.py:33"), (5, "/home/me/train.py:33")])
def test_the_line_comes_from_the_stack_of_the_thread_or_else_of_another(tmp_path: Path, thread: int, line: str) -> None:
    frames = [
        "/home/me/train.py(9): <module>",
        "/home/me/train.py(33): step",
        "torch/autograd/__init__.py(83): backward",
        "<built-in method run>",
    ]
    stack = [event("python_function", name, depth, 100 - 2 * depth) for depth, name in enumerate(frames)]
    other = event("python_function", "/home/me/train.py(77): later", 200, 9)
    found = _read(tmp_path, [*stack, other, launch(40, 9, thread), kernel("ncclDevKernel_AllReduce", 500, 50, 9)])
    assert _first(found, "collectives", "line") == (line,)


def test_a_trace_without_steps_is_one_step(tmp_path: Path) -> None:
    found = _read(tmp_path, [launch(5, 1), kernel("gemm", 10, 5, 1)])
    assert _table(found, "steps")[["step", "compute_ms"]].to_numpy().tolist() == [[0, 0.005]]
    assert _table(found, "notes").text.tolist() == ["no ProfilerStep annotation: the whole file counts as one step"]


def test_a_window_of_the_recorder_counts_from_its_name(tmp_path: Path) -> None:
    found = _read(tmp_path, steps(2), name="trace-000040.json.gz")
    assert _table(found, "steps").step.tolist() == [40, 41]


def test_waits_for_data_and_device_are_host_rows(tmp_path: Path) -> None:
    loader = event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 30)
    host = _table(_read(tmp_path, [*steps(1), loader, event("cuda_runtime", "cudaDeviceSynchronize", 50, 9)]), "host")
    assert host[["kind", "step"]].to_numpy().tolist() == [["input", 3], ["host_sync", 3]]
    assert (host.end_ns - host.start_ns).tolist() == [30_000, 9_000]


def test_two_windows_of_a_rank_are_one_run(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"w{number}.json", trace([*steps(2), kernel("gemm", 10, 5, 1)], baseTimeNanoseconds=BASE + number * 10**9))
    found = ingest.read([tmp_path])
    assert _table(found, "steps").step.tolist() == [3, 4, 5, 6]
    assert len(_table(found, "spans")) == 6
    assert _table(found, "notes").text.tolist() == ["steps begin again at 3: counted on from 5"]


def test_several_windows_in_one_file_are_steps_with_a_gap(tmp_path: Path) -> None:
    marks = [event("user_annotation", f"ProfilerStep#{n}", at, 90) for n, at in ((3, 0), (4, 100), (10, 5000), (11, 5100))]
    work = [launch(at + 5, at + 1) for at in (0, 100, 2000, 5000, 5100)]
    kernels = [kernel("gemm", at + 50, 10, at + 1) for at in (0, 100, 2000, 5000, 5100)]
    found = _read(tmp_path, [*marks, *work, *kernels])
    assert _table(found, "steps").step.tolist() == [3, 4, 10, 11]
    assert _table(found, "steps").compute_ms.tolist() == [0.01] * 4
    spans = found.tables["spans"].to_pylist()
    assert [row["step"] for row in spans if row["kind"] == "compute"] == [3, 4, None, 10, 11]
    assert found.tables["notes"].to_pylist() == []


def test_the_same_trace_twice_counts_once(tmp_path: Path) -> None:
    for name in ("a.json", "b.json.gz"):
        write(tmp_path / name, trace([*steps(2), kernel("gemm", 10, 5, 1)]))
    found = ingest.read([tmp_path])
    assert len(_table(found, "spans")) == 3
    assert _table(found, "notes")[["kind", "name", "text"]].to_numpy().tolist() == [
        ["unreadable", "b.json.gz", "of rank 0 and of the same time as a.json: left out"]
    ]


@pytest.mark.parametrize(
    ("around", "name", "rank"),
    [
        ({"distributedInfo": {"rank": 5}}, "x_rank_2.json", 5),
        ({"distributedInfo": {"backend": "nccl"}}, "x_rank_2.json", 2),
        ({"distributedInfo": "broken"}, "rank-0007.pt.trace.json", 7),
        ({"distributedInfo": {"rank": -1}}, "trace.json", 0),
        ({"distributedInfo": {"rank": "4", "world_size": "8"}}, "trace.json", 4),
        ({"distributedInfo": {"rank": 2**31, "world_size": 2**40}}, "trace_6.json", 6),
    ],
)
def test_where_the_rank_comes_from(tmp_path: Path, around: dict[str, Any], name: str, rank: int) -> None:
    assert set(_table(_read(tmp_path, [kernel("k", 1, 1, 1)], name=name, **around), "spans")["rank"]) == {rank}


def test_a_given_rank_wins(tmp_path: Path) -> None:
    found = ingest.read([write(tmp_path / "t.json", trace([kernel("k", 1, 1, 1)]))], rank=9)
    assert set(_table(found, "spans")["rank"]) == {9}


def test_the_host_is_told_where_the_trace_tells_it(tmp_path: Path) -> None:
    clocks = _table(_read(tmp_path, [kernel("k", 1, 1, 1)], host_name="node7"), "clocks")
    assert clocks[["rank", "host"]].to_numpy().tolist() == [[0, "node7"]]
