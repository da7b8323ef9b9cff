# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Who waits for the interpreter's lock while we work gets it after 0.1 ms, not after Python's 5.

A pause now and then would do the same, at two switches of context each, whether or not somebody waits. (Who waits for the CPU that
we are on is up to the kernel: such a thread loses in pieces with pauses what it loses at once without.)
"""

from __future__ import annotations

import os
import sys
import threading

_SHORT_S = 1e-4
_HALF_S = 5e-7
"""Python cuts what it is given to whole microseconds: without it what was read, and is set again, would shrink."""


class _Short:
    """May be nested, and entered on several threads. What the program sets meanwhile stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = self._ours = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(_SHORT_S, self._before) + _HALF_S)
                self._ours = sys.getswitchinterval()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._restore()

    def _restore(self) -> None:
        if sys.getswitchinterval() == self._ours:
            sys.setswitchinterval(self._before + _HALF_S)

    def forked(self) -> None:
        """In a child made by fork, in which nobody is within the block."""
        self._lock = threading.Lock()
        if self._users:
            self._users = 0
            self._restore()


short = _Short()
"""`with short: ...`; there is one interval a process."""
os.register_at_fork(after_in_child=short.forked)
