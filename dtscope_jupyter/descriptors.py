# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Descriptors in a process that is not ours alone: a program may close them all, and give their numbers to its own files."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Mark:
    """Which file a descriptor meant when this was made."""

    def __init__(self, descriptor: int) -> None:
        """OSError where it is not open."""
        self.descriptor = descriptor
        self._file = _file(descriptor)

    def stands(self) -> bool:
        """Whether the descriptor is open and means that file still."""
        try:
            return _file(self.descriptor) == self._file
        except OSError:
            return False

    def same(self, descriptor: int) -> bool:
        """Whether another descriptor means the file of this one."""
        return _file(descriptor) == self._file


class AppendFile:
    """A new file (0600) that only grows, written by nobody else; found by its name again where its descriptor was closed."""

    def __init__(self, path: Path) -> None:
        """FileExistsError where there is one already."""
        self._path = path
        self._mark = Mark(os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600))
        self.size = 0

    def append(self, data: memoryview) -> None:
        """Writes all of it; OSError where the disk is full, with nothing left half written."""
        descriptor, done = self._descriptor(), 0
        try:
            while done < len(data):
                done += os.write(descriptor, data[done:])
        except OSError:
            os.ftruncate(descriptor, self.size)
            raise
        self.size += done

    def cut(self, size: int) -> None:
        """Takes back what was written beyond `size`."""
        os.ftruncate(self._descriptor(), size)
        self.size = size

    def close(self) -> None:
        """Closes it, unless the program did."""
        if self._mark.stands():
            os.close(self._mark.descriptor)

    def _descriptor(self) -> int:
        if not self._mark.stands():
            self._mark = self._found_again()
        return self._mark.descriptor

    def _found_again(self) -> Mark:
        descriptor = os.open(self._path, _APPEND)
        if not self._mark.same(descriptor):
            os.close(descriptor)
            raise OSError(errno.ESTALE, "another file has taken its place", str(self._path))
        return Mark(descriptor)


def _file(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
