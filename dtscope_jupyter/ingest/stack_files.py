# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Stacks as Python's faulthandler writes them -> a row of `host`: where the user's code stood."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dtscope_jupyter.ingest import rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)')
_NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/dtscope_jupyter/", "<frozen ")
_MOST_BYTES = 4 * 2**20


def read(path: Path, rank: int) -> dict[str, pa.Table]:
    """The newest stack of the main thread in a file, as one row; no row where there is none.

    `line` is the innermost frame outside of the library, of torch and of other packages, `detail` that frame's function.
    """
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="replace")
    frame = _users(_main_thread(text))
    if frame is None:
        return {}
    time_ns = path.stat().st_mtime_ns
    row = {
        "rank": rank, "kind": "stack", "start_ns": time_ns, "end_ns": time_ns,
        "detail": frame["function"], "line": f"{frame['file']}:{frame['line']}",
    }  # fmt: skip
    return {"host": rows.from_rows("host", [row])}


def _main_thread(text: str) -> list[re.Match[str]]:
    """The frames of the last thread in the file: faulthandler writes the main thread last."""
    frames: list[re.Match[str]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            frames = []
        elif frame := _FRAME.match(line):
            frames.append(frame)
    return frames


def _users(frames: list[re.Match[str]]) -> re.Match[str] | None:
    own = (frame for frame in frames if not any(part in frame["file"] for part in _NOT_THE_USERS))
    return next(own, frames[0] if frames else None)
