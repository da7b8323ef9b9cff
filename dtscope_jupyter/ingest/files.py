# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which files there are, what each is by its first bytes, and their bytes, decompressed within a bound."""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from isal import igzip, isal_zlib

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD_BYTES = 4096
_JSON_HEAD_BYTES = 2**20
_LEAST_LIMIT = 2**30
_MOST_RATIO = 100
_USUAL_RATIO = 16
_GZIP = b"\x1f\x8b"
_RANK = re.compile(r"rank[-_]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(\d{1,7})(?:\.[A-Za-z_]\w*)*$")
_FLIGHT_RECORDER = re.compile(rb'"(entries|pg_config|pg_status|comm_lib_version|nccl_version)"\s*:')
_NCCL_LOG = re.compile(rb"NCCL (INFO|WARN|TRACE|version)")


class Unreadable(ValueError):  # noqa: N818 - it is a verdict on a file, raised and turned into a note here
    """A file can't be used; the message is the reason, one line."""


class Kind(StrEnum):
    """What a file holds."""

    KINETO = "kineto"
    FLIGHT_RECORDER = "flight_recorder"
    TOPOLOGY = "nccl_topology"
    GRAPH = "nccl_graph"
    LOG = "nccl_log"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that we know how to read; `work` is about how many bytes will have to be decoded."""

    path: Path
    kind: Kind
    bytes: int
    work: int


class Stream:
    """The decompressed bytes of a file; `damage` says why it ended early, where it did.

    Reading stops with Unreadable once more than `limit` bytes came out: 100 times the file's size, at least 1 GiB.
    """

    def __init__(self, path: Path) -> None:
        """OSError where the file can't be opened."""
        with path.open("rb") as file:
            self.packed = file.read(2) == _GZIP
            self.size = os.fstat(file.fileno()).st_size
        opened: Any = igzip.IGzipFile(path, "rb") if self.packed else path.open("rb")  # type: ignore[no-untyped-call]
        self._file: BinaryIO = opened
        self.limit = max(_LEAST_LIMIT, _MOST_RATIO * self.size)
        self.position = 0
        self.damage: str | None = None

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file."""
        self._file.close()

    def read(self, size: int) -> bytes:
        """Up to `size` further bytes, b"" at the end; Unreadable beyond the limit."""
        if self.damage:
            return b""
        try:
            piece = self._file.read(size)
        except EOFError:
            return self._end("the gzip data end early")
        except (isal_zlib.error, zlib.error, igzip.BadGzipFile) as error:  # type: ignore[misc]
            return self._end(f"the gzip data are damaged: {error}")
        self.position += len(piece)
        if self.position > self.limit:
            raise Unreadable(
                f"more than {self.limit >> 20} MiB come out of {self.size} bytes: not read further, as it looks like a zip bomb"
            )
        return piece

    def rest(self, most: int) -> bytes:
        """All that is left; Unreadable where it is more than `most` bytes."""
        pieces: list[bytes] = []
        total = 0
        while piece := self.read(2**20):
            pieces.append(piece)
            total += len(piece)
            if total > most:
                raise Unreadable(f"larger than {most >> 20} MiB, which no file of this kind is")
        return b"".join(pieces)

    def _end(self, damage: str) -> bytes:
        self.damage = damage
        return b""


def find(paths: Iterable[Path]) -> Iterator[Path]:
    """The files of `paths`, folders walked without following links; DtscopeError where one does not exist."""
    for path in paths:
        if path.is_dir():
            yield from (Path(folder) / name for folder, _, names in sorted(os.walk(path)) for name in sorted(names))
        elif path.exists():
            yield path
        else:
            raise DtscopeError(f"no file or folder {str(path)!r}: give a trace, a dump or a folder of them")


def identify(path: Path) -> Source:
    """What `path` is, by its content; Unreadable where we have no reader for it."""
    try:
        if not path.is_file():
            raise Unreadable("no regular file")
        with Stream(path) as stream:
            return Source(path, _kind(stream), stream.size, stream.size * (_USUAL_RATIO if stream.packed else 1))
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def rank_of(path: Path) -> int | None:
    """The rank that a file's name tells (rank3, rank_3, _dump_3), or its folder's (rank-0003), or None."""
    if found := _RANK.findall(path.name):
        return int(found[-1])
    if match := _LAST_NUMBER.search(path.name):
        return int(match[1])
    found = _RANK.findall(path.parent.name)
    return int(found[-1]) if found else None


def _kind(stream: Stream) -> Kind:
    head = stream.read(_HEAD_BYTES)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        raise Unreadable(stream.damage or "empty file")
    if text[:1] in b"{[":
        return _kind_of_json(text + stream.read(_JSON_HEAD_BYTES))
    if head[:1] == b"\x80":
        return Kind.FLIGHT_RECORDER
    if b"<graphs" in head:
        return Kind.GRAPH
    if b"<system" in head:
        return Kind.TOPOLOGY
    if b"\0" not in head and _NCCL_LOG.search(head + stream.read(_JSON_HEAD_BYTES)):
        return Kind.LOG
    raise Unreadable("neither a trace nor a dump nor a file of NCCL")


def _kind_of_json(head: bytes) -> Kind:
    if b'"traceEvents"' in head or b'"schemaVersion"' in head or (head[:1] == b"[" and b'"ph"' in head):
        return Kind.KINETO
    if _FLIGHT_RECORDER.search(head):
        return Kind.FLIGHT_RECORDER
    raise Unreadable("JSON, but neither a Kineto trace nor a Flight Recorder dump")
