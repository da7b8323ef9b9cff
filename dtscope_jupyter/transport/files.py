# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Reading pieces of files that others may have put there: never through a link."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_file(path: Path, place: int, limit: int) -> tuple[bytes, tuple[int, int] | None]:
    """Bytes of a file from `place`, and (mtime, size) that change with it; (b"", None) where there is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", None
        return os.pread(descriptor, limit, place), (status.st_mtime_ns, status.st_size)
    finally:
        os.close(descriptor)
