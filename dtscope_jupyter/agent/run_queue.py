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
        self._before: int | None = None

    def since_last(self) -> int | None:
        """Nanoseconds since the last call on this thread; None on the first, and where the system does not tell."""
        total = self.total()
        before, self._before = self._before, total
        return None if before is None or self._before is None else self._before - before

    def total(self) -> int | None:
        """Nanoseconds since the thread began; None where the system does not tell."""
        thread = threading.get_native_id()
        if thread != self._thread:
            self._reopen(thread)
        return self._read()

    def _reopen(self, thread: int) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._thread, self._file, self._before = thread, None, None
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def _read(self) -> int | None:
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, _BYTES, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return None
