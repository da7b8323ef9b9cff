# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What ended a run, as an exception whose rendering is the rank's own traceback."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from dtscope_jupyter.errors import PEER_LOST


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of one rank that was no success.

    `time_ns` is Unix time by the host's clock; `traceback` is empty for a rank that died without a word, and then
    `log` holds its last lines.
    """

    rank: int
    time_ns: int
    reason: str
    traceback: str = ""
    log: str = ""

    @property
    def follows_from_another(self) -> bool:
        """Whether it reads like the loss of a peer, so that another rank's failure is the cause if there is one."""
        return bool(self.traceback) and any(text in self.traceback for text in PEER_LOST)


class RankError(RuntimeError):
    """A rank failed; `failure` says which and how. A notebook shows the rank's traceback in place of the kernel's."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"rank {failure.rank}: {failure.reason}")
        self.failure = failure
        detail = _detail(failure)
        if detail:
            self.add_note(detail)

    def _render_traceback_(self) -> list[str]:
        return [*(_detail(self.failure).splitlines()), f"RankError: {self}"]


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; what was recorded is kept."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


def first(failures: list[Failure]) -> Failure:
    """The cause among several: the earliest that doesn't read like the loss of a peer."""
    assert failures
    return min(failures, key=lambda failure: (failure.follows_from_another, failure.time_ns))


def describe_exit(status: int) -> str:
    """One clause for an exit status as subprocess gives it: negative for a signal."""
    if status >= 0:
        return f"ended with exit code {status} before its program was complete"
    name = signal_name(-status)
    hint = " (out of memory, or killed by hand)" if name == "SIGKILL" else ""
    return f"ended by {name}{hint}"


def signal_name(number: int) -> str:
    """SIGKILL, or signal 40 where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _detail(failure: Failure) -> str:
    if failure.traceback:
        return f"Traceback of rank {failure.rank}:\n{failure.traceback.rstrip()}"
    return f"Last lines of rank {failure.rank}:\n{failure.log.rstrip()}" if failure.log.strip() else ""
