# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of each operation, as nccl-tests counts them."""

from __future__ import annotations

import pytest
import torch
from torch._C._distributed_c10d import ProcessGroup

from dtscope_jupyter.agent.operations import METHODS

SMALL, LARGE = torch.zeros(6), torch.zeros(24)
WORLD = 4


@pytest.mark.parametrize(
    ("method", "arguments", "size"),
    [
        ("allreduce", ([LARGE],), 96),
        ("allreduce", (LARGE,), 96),
        ("allreduce_coalesced", ([SMALL, LARGE],), 120),
        ("broadcast", ([SMALL],), 24),
        ("reduce", ([SMALL],), 24),
        ("allgather", ([[SMALL] * WORLD], [SMALL]), 96),
        ("_allgather_base", (LARGE, SMALL), 96),
        ("gather", ([], [SMALL]), 96),
        ("scatter", ([SMALL], []), 96),
        ("reduce_scatter", ([SMALL], [[SMALL] * WORLD]), 96),
        ("_reduce_scatter_base", (SMALL, LARGE), 96),
        ("alltoall", ([SMALL] * WORLD, [SMALL] * WORLD), 96),
        ("alltoall_base", (LARGE, LARGE, [], []), 96),
        ("send", ([SMALL], 3, 0), 24),
        ("recv", ([SMALL], 3, 0), 24),
        ("barrier", (), 0),
    ],
)
def test_bytes(method: str, arguments: tuple[object, ...], size: int) -> None:
    assert METHODS[method].read(arguments, WORLD).bytes == size


def test_dtype_and_shape_are_the_inputs() -> None:
    message = METHODS["_allgather_base"].read((torch.zeros(8, dtype=torch.half), torch.zeros(2, dtype=torch.half)), WORLD)
    assert message.tensor is not None
    assert message.tensor.shape == (2,)
    assert message.bytes == 16


def test_peer_of_a_message() -> None:
    assert METHODS["send"].read(([SMALL], 3, 0), WORLD).peer == 3
    assert METHODS["recv_anysource"].read(([SMALL], 0), WORLD).peer is None


def test_every_collective_of_this_torch_is_known() -> None:
    ours = {"allreduce", "allgather", "broadcast", "reduce", "scatter", "gather", "alltoall", "send", "recv", "barrier", "all_", "reduce_"}
    others = {"_allgather_base", "_reduce_scatter_base"}
    names = {name for name in dir(ProcessGroup) if name in others or name.startswith(tuple(ours))}
    assert names <= METHODS.keys()
