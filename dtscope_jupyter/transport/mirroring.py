# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A notebook's copy of a run that a collector holds: the same files, in a directory of the notebook's own."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.transport import wire
from dtscope_jupyter.transport.archive import Archive
from dtscope_jupyter.transport.line import AwayError, Line

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.transport.keys import ClientKeys

log = logging.getLogger("dtscope.mirror")

_POLL_S = 0.1
_NEWS_BYTES = 4 * 2**20
_DISK = 2**40


class Mirror:
    """Follows one run in a thread; `path` is the run directory to tail, `away` tells that the collector does not answer."""

    def __init__(self, endpoint: str, keys: ClientKeys, into: Path, run: str = "") -> None:
        """Asks for `run` ("" is the newest) and begins; DtscopeError where nobody answers within 5 s or there is no such run."""
        self.away = False
        self._archive = Archive(into, _DISK)
        self._places: dict[str, wire.Place] = {}
        self._run = run
        self._stop = threading.Event()
        self._line = Line(endpoint, keys)
        try:
            self.runs = self._follow()
        except AwayError as error:
            self._close()
            message = f"{error}; is `dtscope collect` running there, and are these its keys?"
            raise DtscopeError(message) from error
        except DtscopeError:
            self._close()
            raise
        self.path = into / self._run
        self._thread = threading.Thread(target=self._loop, name="dtscope-mirror", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and closes the files; the copy stays."""
        self._stop.set()
        self._thread.join()

    def _follow(self) -> list[str]:
        have = {wire.folder_key(place): self._archive.folder(place).ends for place in self._places.values()}
        answer, _ = self._line.ask(wire.Follow(wire.PROTOCOL, self._run, have))
        if isinstance(answer, wire.Refused):
            raise DtscopeError(f"the collector refused: {answer.reason}")
        if not isinstance(answer, wire.Following):
            raise AwayError(f"the collector answered {type(answer).__name__}")
        self._run = answer.run
        return answer.runs

    def _loop(self) -> None:
        known = True
        while not self._stop.is_set():
            try:
                if not known:
                    self._follow()
                known = self._take_news()
                self.away = False
            except AwayError as error:
                log.info("%s", error)
                self.away, known = True, False
                self._stop.wait(1.0)
            except (DtscopeError, OSError, ValueError) as error:
                log.warning("following %s ends: %s", self._run, error)
                self.away = True
                break
        self._close()

    def _take_news(self) -> bool:
        begin = time.monotonic()
        answer, payload = self._line.ask(wire.More(_NEWS_BYTES))
        if not isinstance(answer, wire.News):
            return False
        for place, (part, head, body) in zip(answer.folders, wire.split(answer.parts, payload), strict=True):
            if place.run != self._run:
                raise DtscopeError(f"the collector sent a part of {place.run}, which nobody asked for")
            self._places[wire.folder_key(place)] = place
            self._archive.take(self._archive.folder(place), part, head, body)
        if not answer.parts:
            self._stop.wait(max(0.0, _POLL_S - (time.monotonic() - begin)))
        return True

    def _close(self) -> None:
        self._line.close()
        self._archive.close()
