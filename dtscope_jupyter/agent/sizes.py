# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what people write for a share and a size."""

from __future__ import annotations

import re

from dtscope_jupyter.errors import DtscopeError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def share(text: str) -> float:
    """1% or 0.01 -> 0.01; DtscopeError."""
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError as error:
        raise DtscopeError(f"a budget of {text!r} can't be read; write a share of step time, e.g. 1%") from error


def size(text: str) -> int:
    """2GiB, 500MB or a number of bytes -> bytes; DtscopeError."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise DtscopeError(f"a size of {text!r} can't be read; write e.g. 2GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWER[match[2].upper()])
