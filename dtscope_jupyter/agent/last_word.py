# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How a rank that nobody watches over ends, in its own words: one row of kind exit in `notes`.

A rank that is armed and never recorded says nothing. Of an uncaught exception the row is written at once, since torchrun ends a rank
soon after its peer; of whatever else as the interpreter ends. A signal and os._exit leave no word: rank.json says that one was to be
expected (`says_end`), and `vanished.py` tells from /proc.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent import lines
from dtscope_jupyter.agent.progress import HELD
from dtscope_jupyter.errors import PEER_LOST
from dtscope_jupyter.process import namespace

if TYPE_CHECKING:
    from types import TracebackType

    from dtscope_jupyter.agent.core import Agent

_LONGEST = 300
_MOST_CAUSES = 20


class LastWord:
    """Writes it once: the first failure is what ended the rank."""

    def __init__(self, agent: Agent) -> None:
        """`listen` has it called."""
        self._agent = agent
        self._pid = os.getpid()
        self._said = False
        self._left: tuple[int, Any, str] | None = None
        self._before = sys.exc_info()[1] or _last()

    def listen(self) -> None:
        """Takes notice of sys.excepthook, sys.exit and the interpreter's end; all do what they did."""
        sys.excepthook = self._around_hook(sys.excepthook)
        sys.exit = self._around_exit(sys.exit)
        atexit.register(self._at_exit)
        self._agent.at_finish(self._stopped)
        self._agent.identity |= {"says_end": True, "pid_namespace": namespace()}
        self._agent.write_identity()

    def _around_hook(self, hook: Any) -> Any:
        @functools.wraps(hook)
        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            try:
                if not hasattr(sys, "ps1"):  # a prompt goes on
                    self._raised(error, trace)
            finally:
                hook(kind, error, trace)

        return excepthook

    def _around_exit(self, leave: Any) -> Any:
        @functools.wraps(leave)
        def sys_exit(status: Any = None, /) -> Any:
            error = sys.exc_info()[1]
            self._left = (self._agent.progress.step, status, f" upon {_words(error, error.__traceback__)}" if error is not None else "")
            leave(status)

        return sys_exit

    def _at_exit(self) -> None:
        error = _last()
        if error is not None and error is not self._before:
            self._raised(error, error.__traceback__)
        elif self._left is not None and self._left[0] == self._agent.progress.step:
            self._exited(*self._left[1:])
        else:
            self._say("end", 0.0, "ended by itself")

    def _raised(self, error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._say("KeyboardInterrupt", None, "was interrupted")
        else:
            self._say(type(error).__name__, 1.0, f"raised {_words(error, trace)}")

    def _exited(self, status: Any, upon: str) -> None:
        if status in (None, 0):
            self._say("end", 0.0, "ended by itself")
            return
        code = status if isinstance(status, int) else 1
        told = "" if isinstance(status, int) else f" ({_line(str(status))})"
        self._say("SystemExit", float(code), f"left by sys.exit with code {code}{told}{upon}")

    def _stopped(self) -> None:
        """The recording ends before the process does, as where a framework's worker goes on."""
        self._say("finish", None, "stopped recording", flush=False)

    def _say(self, name: str, code: float | None, text: str, *, flush: bool = True) -> None:
        agent = self._agent
        if not (agent.recording or agent.recorder.bytes_written):
            return
        if self._said or (flush and agent.finished) or os.getpid() != self._pid:
            return
        self._said = True
        step = agent.progress.step
        agent.recorder.note("exit", name, code, text, step=step if agent.recording and step != HELD else None)
        if flush:
            agent.recorder.flush()


def _last() -> BaseException | None:
    """What the interpreter ended by, if it did: Python 3.12 has last_exc."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _words(error: BaseException, trace: TracebackType | None) -> str:
    """As in: ValueError: bad batch (train.py:17); the loss of a peer is named where only a cause of it tells."""
    said = f"{type(error).__name__}: {_line(_text(error))}".removesuffix(": ")
    lost = "" if any(mark in said for mark in PEER_LOST) else _lost(error)
    where = _where(trace)
    return f"{said}{f' ({where})' if where else ''}{f', {lost}' if lost else ''}"


def _lost(error: BaseException | None) -> str:
    for _ in range(_MOST_CAUSES):
        if error is None:
            break
        for mark in PEER_LOST:
            if mark in _text(error) or mark == type(error).__name__:
                return mark
        error = error.__cause__ or error.__context__
    return ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001 # the user's own __str__
        return f"<no text: {type(failed).__name__}>"


def _where(trace: TracebackType | None) -> str:
    """file:line of the innermost frame that is the user's."""
    found = ""
    while trace is not None:
        if not lines.is_foreign(trace.tb_frame.f_code.co_filename):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:_LONGEST]
