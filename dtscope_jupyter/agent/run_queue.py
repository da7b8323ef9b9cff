# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How long the training thread was ready to run while something else had the CPU.

Linux counts it for every thread (the second number of its schedstat); one read takes under 1 us.
"""

from __future__ import annotations

import contextlib
import os
import threading

_BYTES = 64


class RunQueue:
    """The waiting time of the calling thread between calls."""

    def __init__(self) -> None:
        self._thread = 0
        self._file: int | None = None
        self.before: bytes | None = None

    def since_last(self) -> int | None:
        """Nanoseconds since the last call on this thread; None on the first, and where the system does not tell."""
        thread = threading.get_native_id()
        if thread != self._thread:
            self._reopen(thread)
        before, self.before = self.before, self.read()
        return between(before, self.before)

    def read(self) -> bytes | None:
        """As the system tells it of the thread of the last call, for `between`."""
        if self._file is None:
            return None
        try:
            return os.pread(self._file, _BYTES, 0)
        except OSError:
            return None

    def _reopen(self, thread: int) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._thread, self._file, self.before = thread, None, None
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)


def between(before: bytes | None, after: bytes | None) -> int | None:
    """Nanoseconds between two readings; None where one tells nothing."""
    if before is None or after is None:
        return None
    try:
        return int(after.split()[1]) - int(before.split()[1])
    except (ValueError, IndexError):
        return None
