# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Functional collectives, as DTensor and tensor parallelism issue them: their Python fronts.

C++ runs them and keeps their Work, so that the end is that of the wait: exact where the program had to wait, late
where it came later (source `host`). Compiled code issues them without Python, and they are not seen.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed._functional_collectives as functional
from torch import Tensor

from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.operations import Message, Method
from dtscope_jupyter.agent.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.collectives import Collectives
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.operation import Operation

_MOST = 4096


def _same(tensor: Tensor, _size: int) -> int:
    return tensor.numel() * tensor.element_size()


def _times_group(tensor: Tensor, size: int) -> int:
    return size * tensor.numel() * tensor.element_size()


_FRONTS: dict[str, tuple[str, int, Callable[[Tensor, int], int]]] = {
    "broadcast": ("broadcast", 2, _same),
    "all_reduce": ("all_reduce", 2, _same),
    "all_gather_single": ("all_gather", 2, _times_group),
    "all_gather_tensor": ("all_gather", 2, _times_group),
    "reduce_scatter_single": ("reduce_scatter", 3, _same),
    "reduce_scatter_tensor": ("reduce_scatter", 3, _same),
    "all_to_all_single": ("all_to_all", 3, _same),
}
"""Front: operation, position of its group, bytes."""
_RENAMED = {"all_gather_tensor": "all_gather_single", "reduce_scatter_tensor": "reduce_scatter_single"}


class Functional(Collector):
    """Adds to the rows of `Collectives`."""

    name = "functional"

    def __init__(self, agent: Agent, collectives: Collectives) -> None:
        """Hooks come with `start`."""
        super().__init__(agent)
        self._collectives = collectives
        self._patches = Patches()
        self._flying: OrderedDict[int, Operation] = OrderedDict()
        self._inside = False

    def start(self) -> None:
        """Installs the hooks."""
        for name, front in _FRONTS.items():
            if name in _RENAMED and hasattr(functional, _RENAMED[name]):
                continue
            self._patches.wrap(functional, name, self._wrapper(*front))
        self._patches.wrap(functional, "wait_tensor", self._wait_wrapper)

    def stop(self) -> None:
        """Takes the hooks off."""
        self._patches.undo()

    def _wrapper(self, name: str, position: int, size: Callable[[Tensor, int], int]) -> Callable[[Any], Callable[..., Any]]:
        def make(original: Any) -> Callable[..., Any]:
            def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or not self.on or self._inside:
                    return original(tensor, *args, **kwargs)
                group = kwargs.get("group", args[position - 1] if len(args) >= position else None)
                operation = self._open(name, tensor, group, size)
                self._inside = True
                try:
                    result = original(tensor, *args, **kwargs)
                except BaseException:
                    if operation is not None:
                        self._collectives.cancel(operation)
                    raise
                finally:
                    self._inside = False
                self._issued(operation, result)
                return result

            return call

        return make

    def _open(self, name: str, tensor: Any, group: Any, size: Callable[[Tensor, int], int]) -> Operation | None:
        try:
            known = _resolve(group)
            if known is None or not isinstance(tensor, Tensor):
                return None
            method = Method(name, lambda _args, members: Message(tensor, size(tensor, members)))
            return self._collectives.open(name, method, known, ())
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)
            return None

    def _issued(self, operation: Operation | None, result: Any) -> None:
        if operation is None:
            return
        try:
            element = getattr(result, "elem", None)
            self._collectives.functional(operation, ended=element is None)
            if element is None:
                return
            self._flying[element.data_ptr()] = operation
            if len(self._flying) > _MOST:
                self._flying.popitem(last=False)
        except Exception as error:  # noqa: BLE001
            self.agent.fail(self.name, error)

    def _wait_wrapper(self, original: Any) -> Callable[..., Any]:
        def wait_tensor(tensor: Any) -> Any:
            if torch.compiler.is_compiling() or not self._flying or not isinstance(tensor, Tensor):
                return original(tensor)
            operation = self._flying.pop(tensor.data_ptr(), None)
            if operation is None:
                return original(tensor)
            return self._collectives.wait_for(operation, lambda: original(tensor))

        return wait_tensor


def _resolve(group: Any) -> Any:
    """The ProcessGroup; None for what can't be told."""
    if group is None:
        return None
    try:
        name = functional._resolve_group_name(group)  # noqa: SLF001
        return torch._C._distributed_c10d._resolve_process_group(name)  # noqa: SLF001
    except (ValueError, RuntimeError, TypeError, AttributeError):
        return None
