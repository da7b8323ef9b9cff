# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Names of operations and element types as the sources write them, and as our tables name them."""

from __future__ import annotations

import re
from typing import Any

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "send": "send",
    "recv": "recv",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}
_DTYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "long": ("int64", 8),
    "longint": ("int64", 8),
    "int": ("int32", 4),
    "short": ("int16", 2),
    "shortint": ("int16", 2),
    "char": ("int8", 1),
    "signedchar": ("int8", 1),
    "byte": ("uint8", 1),
    "unsignedchar": ("uint8", 1),
    "bool": ("bool", 1),
    "complexfloat": ("complex64", 8),
    "complexdouble": ("complex128", 16),
}
_KERNEL = re.compile(r"nccl|dev|kernel|generic", re.IGNORECASE)
_MOST = 2**62
SENDS = frozenset(("send", "recv", "send_recv"))


def operation(name: str) -> str:
    """all_reduce for allreduce, nccl:all_reduce, c10d::allreduce_ or _allreduce_base; else the name without its prefix."""
    bare = name.rpartition(":")[2].split(" ")[0]
    squeezed = bare.replace("_", "").lower()
    return next((ours for theirs, ours in _OPERATIONS.items() if squeezed.startswith(theirs)), bare.strip("_") or "unknown")


def operation_of_kernel(name: str) -> str:
    """The operation in a kernel's name, ncclDevKernel_AllReduce_Sum_f32_RING_LL(...); unknown for generic ones."""
    squeezed = _KERNEL.sub("", name.split("(", maxsplit=1)[0]).replace("_", "").lower()
    return next((ours for theirs, ours in _OPERATIONS.items() if squeezed.startswith(theirs)), "unknown")


def dtype(name: str | None) -> tuple[str | None, int | None]:
    """Torch's name of an element type and its bytes, from Float, c10::BFloat16 or long int; (as given, None) where unknown."""
    if not name:
        return None, None
    squeezed = name.rpartition(":")[2].replace(" ", "").lower()
    if squeezed.startswith("float8"):
        return squeezed, 1
    return _DTYPES.get(squeezed, (squeezed, None))


def elements(shapes: Any, depth: int = 4) -> int | None:
    """Number of elements of a list of shapes, nested up to `depth` (a list of tensors); None where it is no such thing."""
    if not isinstance(shapes, list | tuple) or not depth:
        return None
    if all(isinstance(n, int) and n >= 0 for n in shapes):
        return _product(shapes)
    counts = [elements(shape, depth - 1) for shape in shapes]
    return None if None in counts else min(sum(count for count in counts if count is not None), _MOST)


def volume(name: str, sent: int | None, received: int | None, group_size: int | None) -> int | None:
    """Bytes as nccl-tests counts them, from a rank's input and output: the gathered or unscattered total where they differ."""
    size = _volume(name, sent, received, group_size)
    return size if size is not None and 0 <= size < 2**62 else None


def _volume(name: str, sent: int | None, received: int | None, group_size: int | None) -> int | None:
    if name in ("all_gather", "gather", "recv"):
        whole = sent * group_size if sent is not None and group_size else None
        return received if received or name == "recv" else whole
    if name == "all_to_all":
        return max((size for size in (sent, received) if size is not None), default=None)
    return sent if sent is not None else received


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total = min(total * size, _MOST)
    return total
