# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting for what comes in its time, and what tests ask of processes."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")
WAIT_S = 240.0
"""What anything may take on a busy machine; nobody waits so long on an idle one."""


def until(condition: Callable[[], Value | None], what: str = "what is waited for", seconds: float = WAIT_S) -> Value:
    """The first true value; a failure that says `what` where none has come in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s"
        time.sleep(0.02)
    return value


def alive(pid: int) -> bool:
    """Whether it runs: one that has ended and that nobody has taken note of does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """Pids of the processes that its main thread has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
