# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Values handed to ranks and brought back: cloudpickle by value, over pipes to our own children only."""

from __future__ import annotations

import io
import sys
from typing import Any

import cloudpickle

from dtscope_jupyter.errors import DtscopeError

HUGE_BYTES = 50 * 2**20
"""From here on a pushed value is worth a warning: every rank gets its own copy each time."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle ships no types
    """Moves tensors to the CPU, so that reading them never starts a device."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta"):
            return value.detach().cpu().__reduce_ex__(4)
        return super().reducer_override(value)


def dump(value: Any) -> bytes:
    """Bytes of any value; classes and functions of a notebook travel by value. Raises what pickling raises."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def load(data: bytes) -> Any:
    """The value; only for bytes from a process of our own."""
    return cloudpickle.loads(data)


def collect(names: list[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """The named values of a notebook; DtscopeError names the first one that is missing."""
    for name in names:
        if name not in namespace:
            raise DtscopeError(f"--push {name}: no such name in the notebook: define it in a cell that has run, or leave it out")
    return {name: namespace[name] for name in names}


def pack(values: dict[str, Any]) -> bytes:
    """Bytes of named values, shared objects kept shared; DtscopeError names the value that can't travel."""
    try:
        return dump(values)
    except Exception as error:
        raise DtscopeError(_culprit(values, error)) from error


def size_warning(values: dict[str, Any], packed: bytes, world_size: int) -> str | None:
    """One line where the values are huge, else None."""
    if len(packed) < HUGE_BYTES:
        return None
    sizes = sorted(((len(dump(value)), name) for name, value in values.items()), reverse=True)
    largest = ", ".join(f"{name} ({size / 2**20:.0f} MiB)" for size, name in sizes[:3])
    return f"--push copies {len(packed) / 2**20:.0f} MiB to each of {world_size} ranks: {largest}; loading it inside the cell is cheaper"


def _culprit(values: dict[str, Any], error: Exception) -> str:
    for name, value in values.items():
        try:
            dump(value)
        except Exception as own:  # noqa: BLE001 # pickling runs code of any type
            return f"--push {name}: a {type(value).__name__} can't be sent to another process ({_line(own)}); make it inside the cell"
    return f"--push: the values can't be sent to another process ({_line(error)})"


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
