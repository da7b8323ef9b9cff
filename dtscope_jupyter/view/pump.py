# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Sends what a run directory gains to the pages that show it, at most 10 times a second.

A page acknowledges each message. While more than a few are unacknowledged nothing is sent: the files keep what is
new, and the next message takes the newest. Acknowledgements are heard beside a cell that runs (`widget`), but not by
ipykernel before 7 or where JupyterLab's setting "commsOverSubshells" is off. A page that has fallen silent gets a message a second; to one
that was never heard they go at the full rate, and it acknowledges little (`heard`), since what is sent waits until the cell ends.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import rundir, vanished
from dtscope_jupyter.view import live_ranks
from dtscope_jupyter.view.live_analysis import LiveAnalysis
from dtscope_jupyter.view.live_pack import Message, own_schemas
from dtscope_jupyter.view.live_tail import MEBIBYTE, Delta, RunTail

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.view.widget import Panels

_LOG = logging.getLogger(__name__)
PERIOD_S = 0.1
_FIRST_S, _FIRST_FOR_S = 0.02, 3.0
"""Ranks that have only just been told to record: how often to look for their first rows, and for how long."""
WINDOW = 4
_RANKS_PER_S = 256
_LOOK_S = 1.0
_SHARE = 0.05
"""Of a core that the thread may use."""
_DEAF_S = 2.0
_FRAME_BYTES = 4 * MEBIBYTE
_HELLO_BYTES = 24 * MEBIBYTE
_SNAPSHOT_BYTES = MEBIBYTE
_SNAPSHOT_S = (1.0, 3.0, 10.0)


class Window:
    """How many messages may be under way; thread-safe, as the kernel may hear pages on any thread."""

    def __init__(self) -> None:
        self.sent = -1
        self.acknowledged = -1
        self._heard = 0.0
        self._last = 0.0
        self._lock = threading.Lock()

    def acknowledge(self, frame: int, now: float) -> None:
        """A page has drawn that message."""
        with self._lock:
            self.acknowledged = max(self.acknowledged, min(frame, self.sent))
            self._heard = now

    def may_send(self, now: float) -> bool:
        """Whether one more may go; once a second where pages that used to answer have fallen silent."""
        with self._lock:
            if self.acknowledged < 0 or self.sent - self.acknowledged < WINDOW:
                return True
            return now - self._heard > _DEAF_S and now - self._last > 1.0

    def next(self, now: float) -> int:
        """Number of the message that is about to go."""
        with self._lock:
            self.sent += 1
            self._last = now
            return self.sent


class Pump:
    """The thread between a run directory and a widget."""

    def __init__(self, path: Path, widget: Panels, status: dict[str, Any]) -> None:
        """`status` is what pages say of the run; how it ends is told to `finish`, or seen in the run directory."""
        self._path = path
        self._widget = widget
        self._status = status
        self._tail = RunTail(path, _FRAME_BYTES)
        self._window = Window()
        self._analysis = LiveAnalysis()
        self._told: dict[str, Any] = {}
        self._gone: set[int] = set()
        self._findings: list[dict[str, Any]] | None = None
        self._wanted = threading.Event()
        self._ending = threading.Event()
        self._looked = self._kept = 0.0
        self._rows_came = False
        self._keeping = list(_SNAPSHOT_S)
        self._thread = threading.Thread(target=self._work, name="dtscope-pump", daemon=True)
        widget.snapshot = self._beginning().pack()
        widget.on_msg(self._hear)

    def _beginning(self) -> Message:
        """What there is already, so that a page's first picture waits for no message."""
        self._look()
        message = self._message(reset=True)
        delta = self._tail.poll(_FRAME_BYTES)
        self._take(delta)
        delta.fill(message)
        return message

    def start(self) -> None:
        """Begins to send."""
        self._kept = time.monotonic()
        self._thread.start()

    def finish(self, state: str, message: str) -> None:
        """Sends the rest and the last word, and leaves everything in the widget for pages to come."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self._analysis.stop()
        self._tail.look()
        self._status |= {"state": state, "message": message, "live": False, "ranks": live_ranks.states(self._path, self._tail.ranks)}
        last = self._fresh() or Message({"kind": "data"})
        self._analysis.run_now(over=state != "detached")
        last.header["findings"] = self._analysis.findings or []
        self._send(last, time.monotonic())
        self._widget.snapshot = self._everything(_HELLO_BYTES).pack()

    def _hear(self, _: Any, content: dict[str, Any], __: list[Any]) -> None:
        if content.get("kind") == "ack" and isinstance(content.get("frame"), int):
            self._window.acknowledge(content["frame"], time.monotonic())
        elif content.get("kind") == "hello":
            self._wanted.set()

    def _work(self) -> None:
        period, begun = _FIRST_S, time.monotonic()
        while not self._ending.wait(period):
            used = time.thread_time()
            try:
                self._turn(time.monotonic())
            except Exception:  # noqa: BLE001 - logged with its traceback
                # The view must not end because one turn failed, e.g. while a run directory is being replaced.
                _LOG.exception("dtscope: the live view could not be brought up to date from %s", self._path)
            used = time.thread_time() - used
            soon = not self._rows_came and time.monotonic() - begun < _FIRST_FOR_S
            period = max(_FIRST_S if soon else PERIOD_S, len(self._tail.ranks) / _RANKS_PER_S, used / _SHARE)

    def _turn(self, now: float) -> None:
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._look()
        if self._wanted.is_set():
            self._wanted.clear()
            self._greet(now)
        elif self._window.may_send(now):
            self._send(self._fresh(), now)
        if now - self._kept >= self._keeping[0]:
            self._keep(now)

    def _look(self) -> None:
        ranks = self._tail.look()
        self._status["ranks"] = live_ranks.states(self._path, ranks)
        self._look_for_lost(ranks)
        meta = rundir.read_json(self._path / "run.json")
        if not self._status.get("backend") and meta.get("backend"):
            self._status["backend"] = meta["backend"]
        states = set(self._status["ranks"].values())
        if meta.get("state") and meta.get("ended_ns"):
            self._status |= {"state": meta["state"], "message": meta.get("message", "")}
        elif states:
            self._status["state"] = "finished" if states == {"exited"} else "running"

    def _look_for_lost(self, ranks: list[int]) -> None:
        """Tells the diagnosis of ranks that are gone, when there is one more."""
        gone = {int(rank) for rank, state in self._status["ranks"].items() if state == "exited"}
        if gone - self._gone:
            self._gone = gone
            self._analysis.lost(vanished.notes(rundir.Attempt(self._path, 0), set(ranks) - gone))

    def _take(self, delta: Delta) -> None:
        self._rows_came |= bool(delta.blocks)
        self._analysis.feed(delta)

    def _fresh(self) -> Message | None:
        delta = self._tail.poll(_FRAME_BYTES)
        self._take(delta)
        if delta and self._status["state"] == "waiting":
            self._status["state"] = "running"
        message = Message({"kind": "data"})
        delta.fill(message)
        status = self._full_status()
        if status != self._told:
            message.header["status"] = status
        findings = self._analysis.findings
        if findings is not self._findings:
            message.header["findings"] = findings
        return message if len(message.header) > 1 else None

    def _send(self, message: Message | None, now: float) -> None:
        if message is None:
            return
        self._told = message.header.get("status", self._told)
        self._findings = message.header.get("findings", self._findings)
        message.header |= {"frame": self._window.next(now), "heard": self._window.acknowledged}
        self._widget.send(message.signed(), message.buffers)

    def _greet(self, now: float) -> None:
        """A page asked for everything: all pages begin anew from here."""
        self._tail, skipped = RunTail(self._path, _HELLO_BYTES), self._tail.skipped
        self._tail.look()
        message = self._message(reset=True)
        delta = self._tail.poll(_HELLO_BYTES)
        self._tail.skipped = skipped
        delta.fill(message)
        message.header["findings"] = self._analysis.findings or []
        self._send(message, now)

    def _keep(self, now: float) -> None:
        """A coarse picture in the widget's state, for pages that come while the kernel can't answer."""
        self._kept = now
        if len(self._keeping) > 1:
            self._keeping.pop(0)
        self._widget.snapshot = self._everything(_SNAPSHOT_BYTES).pack()

    def _everything(self, limit: int) -> Message:
        tail = RunTail(self._path, limit)
        tail.look()
        message = self._message(reset=True)
        delta: Delta = tail.poll(limit)
        delta.fill(message)
        message.header |= {"findings": self._analysis.findings or [], "frame": self._window.sent}
        return message

    def _message(self, *, reset: bool) -> Message:
        message = Message({"kind": "data", "reset": reset, "frame": -1, "status": self._full_status()})
        for number, data in enumerate(own_schemas()):
            message.add_schema(number, data)
        return message

    def _full_status(self) -> dict[str, Any]:
        return {**self._status, "skipped": self._tail.skipped, "damaged": self._tail.damaged}
