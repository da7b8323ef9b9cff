# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The line of the user's program that led here: the first frame outside torch, the standard library and us."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import typing_extensions

if TYPE_CHECKING:
    from types import FrameType

_STDLIB = sysconfig.get_path("stdlib") + "/"
_PACKAGES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), str(Path(typing_extensions.__file__)), "<frozen")
_SHARDED = "/fsdp/"
_foreign: dict[str, bool] = {}


def caller() -> tuple[str | None, bool]:
    """("file:line" or None, whether FSDP is on the way); about 0.1 us a frame."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    sharded = False
    while frame is not None:
        filename = frame.f_code.co_filename
        foreign = _foreign.get(filename)
        if foreign is None:
            foreign = _foreign[filename] = is_foreign(filename)
        if not foreign:
            return f"{filename}:{frame.f_lineno}", sharded
        sharded = sharded or _SHARDED in filename
        frame = frame.f_back
    return None, sharded


def is_foreign(filename: str) -> bool:
    """Whether a file is of torch, the standard library or us."""
    return filename.startswith(_PACKAGES) or (filename.startswith(_STDLIB) and "-packages/" not in filename)
