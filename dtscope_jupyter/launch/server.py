# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The warm process: torch is imported once, every rank is a fork of it. Runs outside of the kernel.

The kernel holds the other end of one socket. A request is a line of JSON, with descriptors where it asks for a
child; each has one reply. There is no address and no file that could be left behind, and the end of the kernel
is the end of the socket: the server then kills what it forked and goes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from dtscope_jupyter.launch.leftovers import kill_group

if TYPE_CHECKING:
    from collections.abc import Callable

PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.distributed.optim",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",
    "pyarrow",
    "cloudpickle",
    "dtscope_jupyter.agent.assembly",
    "dtscope_jupyter.launch.rank",
)
"""What a program imports anyway, torch._dynamo with its first optimizer: a second and more that no rank spends again."""

_PARENT_CHECK_S = 0.5


def main(descriptor: int, parent: int) -> None:
    """Serves the kernel `parent`, at the other end of `descriptor`, until it is gone, which it may be before we run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    with _OrphanGuard(parent):
        for module in PRELOAD:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _Server(control, parent).serve()


class _OrphanGuard:
    """Ends the process if its parent dies while it is busy importing; gone before the first fork."""

    def __init__(self, parent: int) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(parent,))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self, parent: int) -> None:
        while os.getppid() == parent:
            if self._done.wait(_PARENT_CHECK_S):
                return
        os._exit(0)


class _Server:
    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._status: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._requests: dict[str, Callable[[dict[str, Any], list[int]], Any]] = {
            "fork": self._fork,
            "signal": self._signal,
            "ping": lambda *_: True,
        }

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._control.sendall(b'{"ready": true}\n')
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while os.getppid() == self._parent:
                for key, _ in selector.select(_PARENT_CHECK_S):
                    if key.fileobj is self._control:
                        self._answer()
                self._reap()
        self._end()

    def _answer(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 65536, 8)
        except ConnectionResetError:
            self._end()
        if not data:
            self._end()
        request = json.loads(data)
        reply = self._requests[request["do"]](request, descriptors)
        with suppress(BrokenPipeError):
            self._control.sendall(json.dumps(reply).encode() + b"\n")

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        status, *given = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(status)  # else it would seem to live as long as any child of its own
            self._become(request["module"], given, server)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        self._status[pid] = status
        for descriptor in given:
            os.close(descriptor)
        return pid

    def _become(self, module: str, given: list[int], server: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._control.close()
            for descriptor in (self._wake_read, self._wake_write, *self._status.values()):
                os.close(descriptor)
            gc.unfreeze()
            code = importlib.import_module(module).main(given, server)
        except BaseException:  # noqa: BLE001 # nobody above would show it
            traceback.print_exc()
        finally:
            os._exit(code)

    def _signal(self, request: dict[str, Any], _: list[int]) -> bool:
        """Only what isn't reaped yet is signalled, so that a pid can't mean another process."""
        pid = request["pid"]
        if pid not in self._status:
            return False
        if request["group"]:
            kill_group(pid)
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, request["number"])
        return True

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 65536)
        while self._status:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            kill_group(ended.si_pid)  # what it left behind, e.g. data loader workers; a zombie keeps its number
            _, status = os.waitpid(ended.si_pid, 0)
            self._tell(ended.si_pid, os.waitstatus_to_exitcode(status))

    def _tell(self, pid: int, code: int) -> None:
        pipe = self._status.pop(pid)
        with suppress(BrokenPipeError):
            os.write(pipe, json.dumps({"code": code, "time_ns": time.time_ns()}).encode())
        os.close(pipe)

    def _end(self) -> NoReturn:
        for pid in self._status:
            kill_group(pid)
        os._exit(0)
