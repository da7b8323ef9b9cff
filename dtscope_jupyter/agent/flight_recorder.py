# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Dumps torch's Flight Recorder: without stacks first, since taking them can block where the process is stuck."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def dump(path: Path, *, stacks: bool) -> list[Path]:
    """Writes `path` (JSON, no stacks) and, beside it, the pickle (with stacks where asked); returns what was written."""
    names = ("_dump_fr_trace_json", "_dump_nccl_trace_json"), ("_dump_fr_trace", "_dump_nccl_trace")
    as_json, as_pickle = (_runtime(*pair) for pair in names)
    written = []
    if as_json is not None:
        written.append(_write(path, as_json(True, False)))  # noqa: FBT003
    if as_pickle is not None:
        written.append(_write(path.with_suffix(".pkl"), as_pickle(True, stacks, False)))  # noqa: FBT003
    if not written:
        raise DtscopeError("this torch has no Flight Recorder; it came with 2.5 for nccl and 2.9 for gloo")
    return written


def active() -> bytes | str | None:
    """The recorder's JSON, without stacks; None where this torch has none."""
    as_json = _runtime("_dump_nccl_trace_json", "_dump_fr_trace_json")
    return None if as_json is None else as_json(True, False)  # noqa: FBT003


def _runtime(*names: str) -> Callable[..., Any] | None:
    from torch._C import _distributed_c10d as runtime

    return next((found for name in names if (found := getattr(runtime, name, None)) is not None), None)


def _write(path: Path, data: bytes | str) -> Path:
    raw = data.encode() if isinstance(data, str) else data
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    return path
