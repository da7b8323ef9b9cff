# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Watches a running profile for a hang: saves stacks and Flight Recorder of every rank while they are stuck, and says so."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from dtscope_jupyter import asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.diagnosis import Finding
    from dtscope_jupyter.run import Run
    from dtscope_jupyter.rundir import Attempt

_log = logging.getLogger(__name__)
_LOOK_S = 0.5
_QUIET_S = 4.0
_HEARTBEATS_S = 5.0
_PROGRESS = ("collectives.index", "steps.index")
_CAPTURES = ({"command": "stacks"}, {"command": "flight_recorder"})


class Watch:
    """A thread that looks twice a second whether the ranks go on; `on_hang` is called once for each hang.

    It costs a few stat calls while they do. Only when no rank has ended a step or a collective for 4 s are the
    tables read; what a hang is `diagnosis.hang` says.
    """

    def __init__(self, attempt: Attempt, unfinished: Callable[[], list[int]], on_hang: Callable[[str, tuple[int, ...]], None]) -> None:
        """`unfinished` tells the ranks that are still to do something; `on_hang` gets one sentence and the ranks to blame."""
        self._attempt = attempt
        self._unfinished = unfinished
        self._on_hang = on_hang
        self._stop = threading.Event()
        self._sizes: dict[str, int] = {}
        self._moved = time.monotonic()
        self._patience = _QUIET_S
        self._run: Run | None = None
        self._thread = threading.Thread(target=self._look_on, name="dtscope-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._stop.wait(_LOOK_S):
            quiet = time.monotonic() - self._moved
            if self._progressed():
                self._moved, self._patience = time.monotonic(), _QUIET_S
            elif quiet >= self._patience:
                self._patience = quiet * 1.25
                if self._judged():
                    self._patience = float("inf")

    def _judged(self) -> bool:
        try:
            return self._consider()
        except Exception:  # noqa: BLE001 # one look at half a run that fails must not be the last
            _log.exception("dtscope: can't tell whether ranks hang")
            return False

    def _progressed(self) -> bool:
        sizes = {}
        for rank in self._attempt.ranks():
            for name in _PROGRESS:
                with suppress(OSError):
                    sizes[f"{rank}/{name}"] = (self._attempt.rank_path(rank) / name).stat().st_size
        moved, self._sizes = sizes != self._sizes, sizes
        return moved

    def _consider(self) -> bool:
        silent = self._silent()
        if not silent and self._finding() is None:
            return False
        for request in _CAPTURES:
            asking.ask_ranks(self._attempt, request)
        finding = self._finding()
        if finding is not None:
            self._on_hang(finding.sentence, finding.ranks)
        elif silent:
            who = ", ".join(map(str, silent))
            self._on_hang(f"Rank {who} gives no sign of life: it is stopped, or something holds its interpreter.", silent)
        else:
            return False
        return True

    def _silent(self) -> tuple[int, ...]:
        """Ranks whose heartbeat, the time of rank.json, stands still and that don't answer either: a busy host is no hang."""
        late = []
        for rank in self._unfinished():
            with suppress(OSError):
                age = time.time() - (self._attempt.rank_path(rank) / "rank.json").stat().st_mtime
                late += [rank] if age > _HEARTBEATS_S else []
        replies = asking.ask_ranks(self._attempt, {"command": "status"}, late)
        return tuple(rank for rank, reply in replies.items() if not reply["ok"] and rank in self._unfinished())

    def _finding(self) -> Finding | None:
        """What the ranks hang at: a hang, or collectives that don't match while one of them is overdue."""
        from dtscope_jupyter.diagnosis import diagnose, hang
        from dtscope_jupyter.run import Run

        if self._run is None:
            self._run = Run.of_directory(self._attempt.run, self._attempt.number)
        self._run.refresh()
        found = diagnose(self._run.tables, live=True).findings
        hangs = [each for each in found if each.kind == "hang"]
        differ = [each for each in found if each.kind == "desync" and each.cause != "values"]
        return next(iter(hangs or (differ if differ and hang.overdue(self._run.tables, time.time_ns()) else ())), None)
