# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the writing thread from asking for CUDA events while a graph is captured, which would end the capture."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.patches import Patches

_capturing = threading.Lock()


class Between:
    """`with between as free`: whether no graph is being captured; none begins within the block then. One a thread."""

    def __init__(self) -> None:
        """Asks for nothing yet."""
        self._free = False

    def __enter__(self) -> bool:
        self._free = _capturing.acquire(blocking=False)
        return self._free

    def __exit__(self, *_: object) -> None:
        if self._free:
            _capturing.release()


def here() -> bool:
    """Whether what the calling thread launches now would become part of a graph, to be run again with each replay."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def watch(patches: Patches, graph: type) -> None:
    """Marks the time from `capture_begin` to `capture_end` of torch's graph class."""
    patches.wrap(graph, "capture_begin", _begin_wrapper)
    patches.wrap(graph, "capture_end", _end_wrapper)


def _begin_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
        _capturing.acquire(timeout=1)
        try:
            return original(graph, *args, **kwargs)
        except BaseException:
            _release()
            raise

    return capture_begin


def _end_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(graph, *args, **kwargs)
        finally:
            _release()

    return capture_end


def _release() -> None:
    if _capturing.locked():
        _capturing.release()
