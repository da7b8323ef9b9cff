# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps Dynamo from compiling our hooks, without what `torch.compiler.disable` costs at every call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from torch._compile import _disable_dynamo

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., Any]")

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:  # an older torch has no such thing
    _never: Any = None
else:
    _never = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)


def uncompiled(function: _Function) -> _Function:
    """The function; neither it nor what it calls is compiled."""
    if _never is None:
        return cast("_Function", _disable_dynamo(function))
    set_code_exec_strategy(function.__code__, _never)
    return function
