# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel's side of the warm process: started in the background, replaced when it is gone or out of date."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from signal import SIGKILL
from typing import IO, TYPE_CHECKING, Any, NoReturn

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch.environment import read_at_import, warm_environment
from dtscope_jupyter.launch.failure import signal_name
from dtscope_jupyter.launch.hiding import hint
from dtscope_jupyter.places import working_directory

if TYPE_CHECKING:
    import signal

_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[3]); from dtscope_jupyter.launch.server import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)
_STOP_S = 2.0
_ANSWER_S = 10.0


class Warm:
    """One warm process and those forked from it; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors: IO[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._ready = False
        self._stopped = False
        self._last_code: int | None = None

    @property
    def pid(self) -> int | None:
        """The warm process, None where there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Starts the process unless one that still fits the environment runs; returns before torch is imported."""
        with self._lock:
            self._start()

    def wait_ready(self) -> None:
        """Returns once ranks can be forked; DtscopeError with the reason where they can't."""
        with self._lock:
            self._start()
            self._wait_ready()
            try:
                self._ask({"do": "ping"}, [])
            except DtscopeError:
                self._start()
                self._wait_ready()

    def fork(self, module: str, descriptors: list[int]) -> tuple[int, int]:
        """Forks a child that calls `main(descriptors, server_pid)` of a module: its pid, and a pipe that will tell its exit."""
        with self._lock:
            self._wait_ready()
            status_read, status_write = os.pipe()
            try:
                pid = self._ask({"do": "fork", "module": module}, [status_write, *descriptors])
            except BaseException:
                os.close(status_read)
                raise
            finally:
                os.close(status_write)
            return int(pid), status_read

    def signal(self, pid: int, number: signal.Signals, *, group: bool = False) -> bool:
        """Signals a child that hasn't been reaped yet (with `group`: its process group); False where it is gone."""
        with self._lock:
            if self._control is None:
                return False
            try:
                return bool(self._ask({"do": "signal", "pid": pid, "number": int(number), "group": group}, []))
            except DtscopeError:
                return False

    def last_words(self) -> str:
        """The last line that it, or a child before it had a log of its own, wrote to stderr."""
        with self._lock:
            return self._last_line()

    def how_it_ended(self) -> str:
        """One clause on the process that ended last: ended by SIGSEGV."""
        with self._lock:
            if self._process is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._last_code = self._process.wait(_STOP_S)
            return self._how_it_ended()

    def kill(self) -> None:
        """Kills the process, and with it all that was forked from it, also while another thread waits for its answer."""
        process = self._process
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """Ends the process and whatever was forked from it, for good."""
        with self._lock:
            self._stopped = True
            self._stop()

    def _start(self) -> None:
        if self._stopped:
            raise DtscopeError("this session was closed: load the extension again")
        environment = warm_environment()
        if self.pid is not None and read_at_import(environment) == read_at_import(self._environment):
            return
        self._stop()
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # has no name, goes with the process
        arguments = [sys.executable, "-c", _CODE, str(theirs.fileno()), str(os.getpid()), json.dumps(sys_path())]
        with theirs:
            self._process = subprocess.Popen(
                arguments,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                process_group=0,  # Jupyter kills the kernel's group: who then ends the ranks' children must not be in it
            )
        self._control, self._environment, self._ready = ours, environment, False

    def _wait_ready(self) -> None:
        if self._ready:
            return
        self._reply()
        self._ready = True
        assert self._control is not None
        self._control.settimeout(_ANSWER_S)

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> Any:
        assert self._control is not None
        data = json.dumps(request).encode()
        try:
            socket.send_fds(self._control, [data], descriptors)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self._gone()
        return self._reply()

    def _reply(self) -> Any:
        assert self._control is not None
        data = b""
        while not data.endswith(b"\n"):
            try:
                more = self._control.recv(4096)
            except ConnectionResetError:
                more = b""
            except TimeoutError:
                self.kill()
                self._gone(f"it gave no answer for {_ANSWER_S:g} s")
            if not more:
                self._gone()
            data += more
        return json.loads(data)

    def _gone(self, seen: str = "") -> NoReturn:
        if self._process is not None and not seen:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        reason = seen or self._last_line()
        self._stop()
        reason = reason or self._how_it_ended()
        if not self._ready and not seen and self._last_code != -SIGKILL:
            hidden = hint(sys_path(), working_directory())
            what = f"no rank can be started, as torch can't be imported ({reason})"
            raise DtscopeError(f"{what}: {hidden or 'mend that'}, then run the cell again")
        raise DtscopeError(f"the warm process that ranks are forked from has ended ({reason}): run the cell again, it starts anew")

    def _how_it_ended(self) -> str:
        code = self._last_code
        return "ended" if code is None else f"ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"

    def _last_line(self) -> str:
        if self._errors is None:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        data = os.pread(self._errors.fileno(), 4096, max(0, size - 4096))
        return (data.decode(errors="replace").strip().splitlines() or [""])[-1]

    def _stop(self) -> None:
        process, control, errors = self._process, self._control, self._errors
        self._process = self._control = self._errors = None
        if control is not None:
            control.close()
        if process is not None:
            if not self._ready:
                process.kill()  # it is busy importing and has forked nobody yet
            _end(process)
            self._last_code = process.returncode
        if errors is not None:
            errors.close()


def sys_path() -> list[str]:
    """The import path of the moment, with the working directory in place of ""."""
    return [entry or working_directory() for entry in sys.path]


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
