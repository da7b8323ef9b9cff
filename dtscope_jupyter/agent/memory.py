# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Memory of the rank, as the kernel and the device's allocator tell it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


def resident() -> int | None:
    """Resident bytes; None where /proc is missing."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return None


def sample() -> tuple[int | None, int | None, int | None]:
    """Resident bytes, device bytes of tensors, device bytes of the allocator; the latter None until the user has initialised CUDA."""
    if not torch.cuda.is_initialized():
        return resident(), None, None
    return resident(), torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
