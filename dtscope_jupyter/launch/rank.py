# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Life of one rank: forked from the warm process, made to look like a fresh one, then the user's program as `__main__`."""

from __future__ import annotations

import atexit
import fcntl
import os
import pickle
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.descriptors import Mark
from dtscope_jupyter.launch import execute, freshen
from dtscope_jupyter.launch.leftovers import kill_group
from dtscope_jupyter.launch.messages import Ended, Run, Setup
from dtscope_jupyter.launch.orphan import die_with

if TYPE_CHECKING:
    from dtscope_jupyter.agent.core import Agent
    from dtscope_jupyter.launch.messages import Stop

_HIGHEST, _ROOM = 8192, 16
_CUT_OFF = (
    "dtscope: the program closed file descriptors that are not its own, the pipe to the notebook among them: "
    "close only what you opened (os.closerange closes everything)"
)
_held: list[Connection] = []
"""Never destroyed, as that would close what may be a descriptor of the program's by then; the process leaves by os._exit."""


def main(descriptors: list[int], server: int) -> int:
    """Runs what the kernel at the other end of the one descriptor sends; the exit code."""
    die_with(server)
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))  # raised only while the program runs
    os.setpgid(0, 0)
    (descriptor,) = descriptors
    kernel = Connection(_out_of_reach(descriptor))
    _held.append(kernel)
    mark = Mark(kernel.fileno())
    orders: queue.SimpleQueue[Setup | Run | Stop] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(kernel, mark, orders), name="dtscope-kernel", daemon=True).start()
    setup = orders.get()
    assert isinstance(setup, Setup)
    freshen.take_over(setup)
    code = 0
    while isinstance(order := orders.get(), Run):
        freshen.redirect(order.log)
        ended = _observed(order, interrupts)
        interrupts.clear()
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
        code = 0 if ended.complete else 1
        if not mark.stands():
            code = _cut_off()
            break
        kernel.send_bytes(pickle.dumps(ended, protocol=5))
        if not order.keep:
            break
    _leave()
    return code


def _listen(kernel: Connection, mark: Mark, orders: queue.SimpleQueue[Setup | Run | Stop]) -> None:
    while mark.stands():
        try:
            orders.put(pickle.loads(kernel.recv_bytes()))  # noqa: S301 # the kernel forked us, nobody else holds the pipe
        except (EOFError, OSError):
            kill_group(os.getpgrp())


def _out_of_reach(descriptor: int) -> int:
    """The pipe to the kernel under a high number: programs close all the low ones (os.closerange) in the belief that none is in use."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(most, _HIGHEST) - _ROOM)
    except OSError:
        return descriptor
    os.close(descriptor)
    return high


def _cut_off() -> int:
    """Says why the kernel hears no more of this rank; the exit code."""
    with suppress(AttributeError, ValueError, OSError):
        sys.stderr.write(f"{_CUT_OFF}\n")
    return 1


def _observed(order: Run, interrupts: list[int]) -> Ended:
    try:
        armed = _arm(order.config) if order.config is not None else None
    except Exception as error:  # noqa: BLE001 # whatever it is, the kernel tells the user
        return Ended(time.time_ns(), reason=f"could not be observed: {error}", traceback=traceback.format_exc())
    try:
        return Ended(time.time_ns(), interrupted=True) if interrupts else execute.execute(order.program)
    finally:
        if armed is not None:
            armed.finish()


def _arm(config: dict[str, Any]) -> Agent:
    from dtscope_jupyter import agent
    from dtscope_jupyter.agent.config import Config

    return agent.arm(Config.from_json(config))


def _leave() -> None:
    """What the interpreter does at its end, less the destructors of C++ that may abort it."""
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 # as multiprocessing does for its children
    atexit._run_exitfuncs()  # noqa: SLF001 # the server leaves by os._exit, users' handlers still run
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # the program replaced or closed it, or its disk is full
            stream.flush()
