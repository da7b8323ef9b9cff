# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rank 0's output, shown in the cell as it comes."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CHUNK = 2**20
_LAST_LINES_BYTES = 8192


class Tail:
    """Hands what is added to a log file to `write`, in whole characters; carriage returns pass as they are."""

    def __init__(self, path: Path, write: Callable[[str], object]) -> None:
        self._path = path
        self._write = write
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.at_line_start = True

    def pump(self) -> None:
        """Passes on what is new; nothing where the file isn't there yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                while data := file.read(_CHUNK):
                    self._position += len(data)
                    self._pass_on(self._decoder.decode(data))
        except FileNotFoundError:
            return

    def finish(self) -> None:
        """Passes on the rest and ends the line, so that what follows begins on one of its own."""
        self.pump()
        if not self.at_line_start:
            self._pass_on("\n")

    def _pass_on(self, text: str) -> None:
        if text:
            self._write(text)
            self.at_line_start = text.endswith("\n")


def last_lines(path: Path, count: int) -> str:
    """The last lines of a log file, "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LAST_LINES_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-count:])
