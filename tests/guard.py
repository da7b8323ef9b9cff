# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ends what tests started when pytest ends, however it ends: torchrun's ranks, collectors, shippers, kernels, browsers.

A session's processes bear its mark in their environment. A small process, of a session of its own, waits for the end of pytest
(a descriptor of the process tells it of SIGKILL as well) and then kills all that bear the mark.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "DTSCOPE_TEST_SESSION"
_ROUNDS = 20


def begin(mark: str = "") -> None:
    """Marks this process's children and starts the guard; workers of pytest-xdist leave that to who started them."""
    if MARK in os.environ:
        return
    os.environ[MARK] = mark or secrets.token_hex(8)
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    command = [sys.executable, "-I", __file__, str(os.getpid()), os.environ[MARK]]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=unmarked, start_new_session=True)


def wait_for(parent: int) -> None:
    """Returns when the process that started this one has ended."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:  # else it ended before, and the number may be another's
            select.select([descriptor], [], [])


def marked(mark: str) -> list[int]:
    """Pids of the processes that bear a mark."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def sweep(mark: str) -> None:
    """Kills them, and those that they start meanwhile."""
    for _ in range(_ROUNDS):
        pids = marked(mark)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(0.1)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wait_for(int(sys.argv[1]))
    sweep(sys.argv[2])
