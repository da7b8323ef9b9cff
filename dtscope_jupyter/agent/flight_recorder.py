# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Dumps torch's Flight Recorder: without stacks first, since taking them can block where the process is stuck."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_RECORDERS = (("_dump_nccl_trace_json", "_dump_nccl_trace"), ("_dump_fr_trace_json", "_dump_fr_trace"))
"""Of NCCL's groups, and of the others': a torch for CUDA has both, and each knows of its own."""


def dump(path: Path, *, stacks: bool) -> list[Path]:
    """Writes `path` (JSON, no stacks) and, beside it, the pickle (with stacks where asked); returns what was written.

    A second recorder that holds entries has `-2` in its files' names. DtscopeError where torch has none.
    """
    found = [(as_json, as_pickle) for as_json, as_pickle in map(_runtime, _RECORDERS) if as_json or as_pickle]
    if not found:
        raise DtscopeError("this torch has no Flight Recorder; it came with 2.5 for nccl and 2.9 for gloo")
    texts = [(as_json(True, False) if as_json else None, as_pickle) for as_json, as_pickle in found]  # noqa: FBT003
    written = []
    for number, (text, as_pickle) in enumerate([one for one in texts if _entries(one[0])] or texts[:1]):
        target = path if not number else path.with_stem(f"{path.stem}-{number + 1}")
        if text is not None:
            written.append(_write(target, text))
        if as_pickle is not None:
            written.append(_write(target.with_suffix(".pkl"), as_pickle(True, stacks, False)))  # noqa: FBT003
    return written


def entries() -> list[dict[str, Any]]:
    """What the recorders hold, without stacks; [] where this torch has none or they are off."""
    return [entry for as_json, _ in map(_runtime, _RECORDERS) if as_json for entry in _entries(as_json(True, False))]  # noqa: FBT003


def _entries(text: bytes | str | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text).get("entries", []) if text else []
    return found


def _runtime(names: tuple[str, str]) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
    from torch._C import _distributed_c10d as runtime

    return getattr(runtime, names[0], None), getattr(runtime, names[1], None)


def _write(path: Path, data: bytes | str) -> Path:
    raw = data.encode() if isinstance(data, str) else data
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    return path
