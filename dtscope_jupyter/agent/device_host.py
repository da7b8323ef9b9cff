# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where the host waits for a CUDA device: .item() and its like, and copies between the two.

Hooks on torch.Tensor that look at one flag for tensors of the CPU; they come once the program has initialised CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dtscope_jupyter.agent import lines
from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.agent.host import Host

_READS = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__")
_COPIES = ("cpu", "cuda", "to", "copy_", "numpy")
_SHORT_NS = 5_000


class DeviceHost(Collector):
    """Adds host_sync and copy to what `Host` records."""

    name = "host_sync"

    def __init__(self, agent: Agent, host: Host) -> None:
        """Hooks come with the first step that ends after CUDA has begun."""
        super().__init__(agent)
        self._host = host
        self._patches = Patches()
        self._installed = False
        self._inside = False

    def step_closed(self, _step: int) -> None:
        """Installs the hooks once there is something to see."""
        if self._installed or not self.on or not torch.cuda.is_initialized():
            return
        self._installed = True
        for name in _READS:
            self._patches.wrap(torch.Tensor, name, self._read_wrapper(f"aten::{name.strip('_')}"))
        for name in _COPIES:
            self._patches.wrap(torch.Tensor, name, self._copy_wrapper(name))

    def stop(self) -> None:
        """Takes the hooks off."""
        self._patches.undo()
        self._installed = False

    def _read_wrapper(self, detail: str) -> Callable[[Any], Callable[..., Any]]:
        def make(original: Any) -> Callable[..., Any]:
            def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                if self._inside or not tensor.is_cuda or torch.compiler.is_compiling():
                    return original(tensor, *args, **kwargs)
                start, self._inside = now(), True
                try:
                    return original(tensor, *args, **kwargs)
                finally:
                    self._inside = False
                    self._host.event("host_sync", start, now(), detail=detail, line=lines.caller()[0])

            return read

        return make

    def _copy_wrapper(self, name: str) -> Callable[[Any], Callable[..., Any]]:
        def make(original: Any) -> Callable[..., Any]:
            def copy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                if self._inside or torch.compiler.is_compiling():
                    return original(tensor, *args, **kwargs)
                start, self._inside = now(), True
                try:
                    result = original(tensor, *args, **kwargs)
                finally:
                    self._inside = False
                self._copied(name, tensor, args[0] if name == "copy_" and args else result, start)
                return result

            return copy

        return make

    def _copied(self, name: str, tensor: torch.Tensor, other: Any, start: int) -> None:
        end = now()
        if not isinstance(other, torch.Tensor) or other.device.type == tensor.device.type or end - start < _SHORT_NS:
            return
        source, target = (other, tensor) if name == "copy_" else (tensor, other)
        host = target if source.is_cuda else source
        memory = "pinned" if host.is_pinned() else "pageable"
        detail = f"{'DtoH' if source.is_cuda else 'HtoD'} {memory} Tensor.{name}"
        self._host.event("copy", start, end, source.nbytes, detail, lines.caller()[0])
