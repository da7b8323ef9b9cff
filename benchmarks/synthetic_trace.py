# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Large traces in Kineto's own layout and mixture of events: operators, launches, kernels, flow arrows, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isal import igzip

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_EVENTS = 12
BLOCK_NS = 60_000
BLOCKS_PER_STEP = 1000
BLOCKS_PER_COLLECTIVE = 100
_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >"
    "(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_NCCL_ARGS = (
    ', "Collective name": "allreduce", "In msg nelems": 6637568, "Out msg nelems": 6637568, "Group size": {ranks}, "dtype": "Float", '
    '"In split size": "[]", "Out split size": "[]", "Process Group Name": "0", "Process Group Description": "default_pg", '
    '"Process Group Ranks": "[{members}]"'
)
_OPERATORS = ("aten::linear", "aten::addmm", "aten::empty", "aten::add_", "autograd::engine::evaluate_function: AddmmBackward0")


def write(path: Path, events: int, rank: int, ranks: int) -> int:
    """Writes a trace of about `events` events and gives their number."""
    blocks = max(1, round(events / BLOCK_EVENTS))
    told = f'{{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}}'
    head = f'{{\n  "schemaVersion": 1,\n  "distributedInfo": {told},\n  "traceEvents": [\n'
    plain, collective = _block(_KERNEL, ""), _block(_NCCL, _nccl_args(ranks))
    written = 0
    with igzip.open(path, "wb", compresslevel=1) as out:  # type: ignore[no-untyped-call]
        out.write(head.encode())
        for first in range(0, blocks, BLOCKS_PER_STEP):
            count = min(BLOCKS_PER_STEP, blocks - first)
            out.write((("" if first == 0 else ",\n") + _step(first, count, rank, plain, collective)).encode())
            written += count * BLOCK_EVENTS + 1
        out.write(b'\n  ],\n  "traceName": "synthetic",\n  "baseTimeNanoseconds": 1790857026000000000\n}\n')
    return written


def _nccl_args(ranks: int) -> str:
    return _NCCL_ARGS.format(ranks=ranks, members=", ".join(map(str, range(ranks)))).replace("%", "%%")


def _step(first: int, count: int, rank: int, plain: str, collective: str) -> str:
    begin, length = first * BLOCK_NS, count * BLOCK_NS
    number = first // BLOCKS_PER_STEP
    name = f"ProfilerStep#{number}"
    texts = [_event("user_annotation", name, "9", "9", f'"External id": {number}') % (_at(begin), _us(length - 100))]
    for block in range(first, first + count):
        text = collective if block % BLOCKS_PER_COLLECTIVE == BLOCKS_PER_COLLECTIVE - 1 else plain
        texts.append(text % _values(block, rank))
    return ",\n".join(texts)


def _block(kernel: str, args: str) -> str:
    """A format string of BLOCK_EVENTS events; `_values` fills it."""
    about = '"External id": %d,"Record function id": 0, "Sequence number": 4339, "Fwd thread id": 1, "Ev Idx": %d'
    operators = [_event("cpu_op", name, "9", "9", about) for name in _OPERATORS]
    launches = [_event("cuda_runtime", "cudaLaunchKernel", "9", "9", '"External id": %d, "cbid": 211, "correlation": %d') for _ in range(3)]
    device = (
        '"External id": %d, "queued": 0, "device": 0, "context": 1,\n      "stream": 7, "correlation": %d,\n      '
        '"registers per thread": 20, "shared memory": 0,\n      "blocks per SM": 1.375,\n      "warps per SM": 5.5,\n      '
        '"grid": [110, 1, 1],\n      "block": [128, 1, 1],\n      "est. achieved occupancy %%": 9'
    )
    kernels = [_event("kernel", _KERNEL, "0", "7", device), _event("kernel", kernel, "0", "20" if args else "7", device + args)]
    arrow = '  {{\n    "ph": "{0}", "id": %d, "pid": {1}, "tid": {2}, "ts": %s,\n    "cat": "ac2g", "name": "ac2g"\n  }}'
    flows = [arrow.format("s", 9, 9), arrow.format("f", 0, 7)]
    return ",\n".join((*operators, *launches, *kernels, *flows))


def _event(cat: str, name: str, process: str, thread: str, args: str) -> str:
    name = name.replace("%", "%%")
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {process}, "tid": {thread},\n    "ts": %s, "dur": %s,\n'
        f'    "args": {{\n      {args}\n    }}\n  }}'
    )


def _values(block: int, rank: int) -> tuple[object, ...]:
    begin = block * BLOCK_NS
    values: list[object] = []
    for place in range(5):
        values += [_at(begin + place * 9_000), _us(8_000), block * 8 + place, block * 8 + place]
    for place in range(3):
        values += [_at(begin + 3_000 + place * 9_000), _us(4_321), block * 8 + place, block * 4 + place]
    for place in range(2):
        values += [_at(begin + 20_000 + rank * 100 + place * 15_000), _us(23_456), block * 8 + place, block * 4 + place]
    return (*values, block * 4, _at(begin + 3_000), block * 4, _at(begin + 20_000))


def _at(ns: int) -> str:
    return _us(4_458_676_416_788_000 + ns)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
