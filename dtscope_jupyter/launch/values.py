# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Values handed to ranks and brought back: cloudpickle by value, over pipes to our own children only."""

from __future__ import annotations

import io
import re
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE_BYTES = 50 * 2**20
"""From here on a pushed value is worth a warning: every rank gets its own copy each time."""
_NO_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_SHELLS = ("In", "Out", "get_ipython", "exit", "quit", "open")
"""Names that IPython puts into every notebook."""

labels: dict[str, str] = {}
"""File names that code gets in this process in place of those it was compiled with elsewhere."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle ships no types
    """Moves tensors to the CPU, so that reading them never starts a device; code keeps its file's name, for tracebacks."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.filenames: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.CodeType):
            self.filenames.add(value.co_filename)
            make, arguments, *_ = self.dispatch_table[types.CodeType](value)
            return _named_code, (value.co_filename, make, arguments)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta"):
            return value.detach().cpu().__reduce_ex__(4)
        return super().reducer_override(value)


@dataclass(frozen=True, slots=True)
class Packed:
    """Bytes of a value, and the files that the code in it was compiled from."""

    data: bytes
    filenames: frozenset[str]


def pack(value: Any) -> Packed:
    """Any value for the way to another process; classes and functions of a notebook go by value. Raises what pickling raises."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return Packed(file.getvalue(), frozenset(pickler.filenames))


def dump(value: Any) -> bytes:
    """As `pack`, the bytes only."""
    return pack(value).data


def load(data: bytes) -> Any:
    """The value; only for bytes from a process of our own."""
    return cloudpickle.loads(data)


def collect(names: list[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """The named values of a notebook; DtscopeError names the first one that is missing."""
    for name in names:
        if name not in namespace:
            raise DtscopeError(f"--push {name}: no such name in the notebook: define it in a cell that has run, or leave it out")
    return {name: namespace[name] for name in names}


def left_behind(reason: str, namespace: dict[str, Any]) -> str | None:
    """One line where a rank failed for want of a name that the notebook has: what to do; else None."""
    match = _NO_NAME.match(reason)
    if match is None or match[1] not in namespace or match[1] in _SHELLS or match[1].startswith("_"):
        return None
    name = match[1]
    remedy = "import it in the cell" if isinstance(namespace[name], types.ModuleType) else f"give it to them with --push {name}"
    return f"the notebook has a {name}, but ranks are processes of their own and know only the cell: {remedy}"


def pack_named(values: dict[str, Any]) -> Packed:
    """Named values, shared objects kept shared; DtscopeError names the one that can't travel."""
    try:
        return pack(values)
    except (Exception, SystemExit) as error:
        raise DtscopeError(_culprit(values, error)) from error


def size_warning(values: dict[str, Any], size: int, world_size: int) -> str | None:
    """One line where the values, `size` bytes in all, are huge; else None."""
    if size < HUGE_BYTES:
        return None
    sizes = sorted(((len(dump(value)), name) for name, value in values.items()), reverse=True)
    largest = ", ".join(f"{name} ({each / 2**20:.0f} MiB)" for each, name in sizes[:3])
    return f"--push copies {size / 2**20:.0f} MiB to each of {world_size} ranks: {largest}; loading it inside the cell is cheaper"


def _named_code(filename: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]) -> types.CodeType:
    return make(*arguments).replace(co_filename=labels.get(filename, filename))


def _culprit(values: dict[str, Any], error: BaseException) -> str:
    for name, value in values.items():
        try:
            dump(value)
        except (Exception, SystemExit) as own:  # noqa: BLE001 # pickling runs code of any type
            return f"--push {name}: a {type(value).__name__} can't be sent to another process ({_line(own)}); make it inside the cell"
    return f"--push: the values can't be sent to another process ({_line(error)})"


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
