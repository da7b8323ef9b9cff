# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Stacks of a rank whose interpreter is stuck: a real-time signal makes faulthandler write them in C, without its lock."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent

NUMBER = signal.SIGRTMIN + 12
FILE = "stacks-signal.txt"


def register(agent: Agent) -> None:
    """Has stacks written to FILE on NUMBER, unless the program uses that signal; says so in rank.json."""
    if signal.getsignal(NUMBER) is not signal.SIG_DFL:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(agent.config.folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(NUMBER, descriptor, all_threads=True)
        agent.identity |= {"stack_signal": int(NUMBER), "stack_file": FILE}
        agent.write_identity()
