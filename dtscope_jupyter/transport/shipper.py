# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ships one rank's folder to a collector. The folder itself is the spool: what was not acknowledged is read again.

Runs in a process of its own, so that neither a slow network nor a collector that is away can touch the training, and what a
killed rank has written still arrives.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.segments import SegmentReader
from dtscope_jupyter.transport import clock, wire
from dtscope_jupyter.transport.files import read_file
from dtscope_jupyter.transport.line import AwayError, Line
from dtscope_jupyter.transport.wire import Part, Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dtscope_jupyter.transport.keys import ClientKeys

log = logging.getLogger("dtscope.ship")

_POLL_S = 0.1
_CLOCK_S = 5.0
_FIRST_TRIPS = 8
_AWAY_S = 1.0
_RANK = re.compile(r"rank-(\d{4,7})")
_ATTEMPT = re.compile(r"attempt-(\d{1,6})")


def place_of(folder: Path) -> Place:
    """Run, attempt and rank by the names of a rank folder and its parents; DtscopeError where it is none."""
    rank = _RANK.fullmatch(folder.name)
    if not rank:
        raise DtscopeError(f"{str(folder)!r} is no rank folder; give RUN/rank-NNNN")
    attempt = _ATTEMPT.fullmatch(folder.parent.name)
    run = folder.parent.parent if attempt else folder.parent
    name = re.sub(r"[^A-Za-z0-9._-]", "-", run.name).lstrip("._-")[:128] or "run"
    return Place(name, int(attempt[1]) if attempt else 0, int(rank[1]))


class Shipper:
    """One rank folder and the line to its collector."""

    def __init__(self, folder: Path, endpoint: str, keys: ClientKeys) -> None:
        """`folder` is RUN/[attempt-N/]rank-NNNN and need not hold anything yet."""
        self._folder = folder.resolve()
        self._place = place_of(self._folder)
        self._token = _token(self._folder)
        self._line = Line(endpoint, keys)
        self._spool = Spool(self._folder)
        self._clock = clock.Estimate()
        self._clock_due = 0.0
        self._number = 0
        self._known = False

    def run(self, alive: Callable[[], bool], linger: float) -> bool:
        """Ships until the rank is no more `alive` and all is acknowledged (True), or the collector was away for `linger` s then.

        Raises:
            DtscopeError: The collector refuses for good, or the folder is gone before it came back.
        """
        last = time.monotonic()
        while True:
            ending = not alive()
            try:
                shipped = self.step()
                last = time.monotonic()
            except AwayError as error:
                log.info("%s; the rank's files wait for it", error)
                if ending and not self._folder.is_dir():
                    raise DtscopeError(f"{str(self._folder)!r} is gone, with what was not shipped yet") from error
                if ending and time.monotonic() - last > linger:
                    return False
                time.sleep(_AWAY_S)
                continue
            if not shipped:
                if ending:
                    return True
                time.sleep(_POLL_S)

    def step(self) -> bool:
        """One exchange with the collector; whether anything was shipped. AwayError, or DtscopeError where it refuses for good."""
        if not self._known:
            self._hello()
        if time.monotonic() >= self._clock_due:
            self._compare_clocks()
        parts, payload = self._spool.parts(wire.MAX_PARTS_BYTES)
        if not parts:
            return False
        self._number += 1
        answer, _ = self._ask(wire.Ship(self._number, parts), payload)
        if isinstance(answer, wire.Ack) and answer.number == self._number:
            self._spool.settle(parts, answer.ends)
        else:
            self._known = False
        return True

    def close(self) -> None:
        """Hangs up."""
        self._line.close()

    def _hello(self) -> None:
        answer, _ = self._ask(wire.Hello(wire.PROTOCOL, self._place, self._token))
        if not isinstance(answer, wire.Welcome):
            raise AwayError(f"the collector answered {type(answer).__name__} to a hello")
        self._spool.seek(answer.ends)
        self._known = True

    def _ask(self, request: wire.Request, payload: bytes = b"") -> tuple[wire.Reply, memoryview]:
        try:
            answer, data = self._line.ask(request, payload)
        except AwayError:
            self._known = False
            raise
        if isinstance(answer, wire.Refused):
            self._known = False
            if not answer.retry:
                raise DtscopeError(f"the collector refused rank {self._place.rank}: {answer.reason}")
            raise AwayError(f"the collector refused: {answer.reason}")
        return answer, data

    def _compare_clocks(self) -> None:
        first = self._clock.best() is None
        for _ in range(_FIRST_TRIPS if first else 1):
            answer, _ = self._ask(wire.Clock(time.perf_counter_ns()))
            if isinstance(answer, wire.Time):
                self._clock.add(answer.sent, answer.received, answer.replied, time.perf_counter_ns())
        self._clock_due = time.monotonic() + _CLOCK_S
        best = self._clock.best()
        if best:
            with suppress(OSError):
                clock.save(self._folder, best)


class Spool:
    """The files of a rank folder, and how far the collector has each."""

    def __init__(self, folder: Path) -> None:
        """Starts as if the collector had nothing."""
        self._folder = folder
        self._attempt = folder.parent
        self._readers: dict[str, SegmentReader] = {}
        self._ends: wire.Ends = {}
        self._refused: set[str] = set()
        self._whole: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, tuple[int, int]] = {}

    def seek(self, ends: wire.Ends) -> None:
        """Goes on after what the collector has."""
        self._readers.clear()
        self._whole.clear()
        self._ends = dict(ends)

    def parts(self, limit: int) -> tuple[list[Part], bytes]:
        """What the collector has not, about `limit` bytes of it, small files first."""
        parts: list[Part] = []
        payload: list[bytes] = []
        for name in [name for name in wire.WHOLE if name not in self._refused]:
            self._replaced(name, parts, payload)
        names = sorted(path.name for path in self._folder.iterdir() if path.name.removesuffix(".index") not in self._refused)
        for name in [name for name in names if wire.GROWING.match(name)]:
            self._grown(name, parts, payload)
        for table in [name.removesuffix(".index") for name in names if name.endswith(".index")]:
            room = limit - sum(map(len, payload))
            if room <= 0:
                break
            self._table(table, room, parts, payload)
        return parts, b"".join(payload)

    def settle(self, parts: list[Part], ends: wire.Ends) -> None:
        """Takes the collector's word for how far the parts' files are there."""
        for part in parts:
            told = ends.get(part.name)
            if told is None:
                self._refused.add(part.name)
                log.warning("the collector does not take %s of %s", part.name, self._folder)
            elif part.kind == "whole":
                self._whole[part.name] = self._sent[part.name]
            else:
                self._ends[part.name] = told
                reader = self._readers.get(part.name)
                if reader and reader.end != told:
                    reader.seek(told)

    def _replaced(self, name: str, parts: list[Part], payload: list[bytes]) -> None:
        folder = self._attempt if name == "run.json" else self._folder
        data, mark = read_file(folder / name, 0, wire.MAX_WHOLE_BYTES)
        if mark and self._whole.get(name) != mark:
            self._sent[name] = mark
            parts.append(Part("whole", name, 0, 0, len(data)))
            payload.append(data)

    def _grown(self, name: str, parts: list[Part], payload: list[bytes]) -> None:
        end = self._ends.get(name, 0)
        data, _ = read_file(self._folder / name, end, wire.MAX_PARTS_BYTES // 4)
        if data:
            parts.append(Part("grow", name, end, 0, len(data)))
            payload.append(data)

    def _table(self, table: str, room: int, parts: list[Part], payload: list[bytes]) -> None:
        reader = self._readers.get(table)
        if reader is None:
            reader = self._readers[table] = SegmentReader(self._folder, table)
            reader.seek(self._ends.get(table, 0))
        segment = reader.read(room)
        if segment:
            parts.append(Part("table", table, segment.before, len(segment.entries), len(segment.entries) + len(segment.data)))
            payload += [segment.entries, bytes(segment.data)]


def _token(folder: Path) -> str:
    path = folder / ".origin"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return path.read_text()
    token = uuid.uuid4().hex
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


