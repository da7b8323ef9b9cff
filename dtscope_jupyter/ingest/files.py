# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which files there are, what each is by its first bytes, and their bytes, decompressed within a bound."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.ingest.gunzip import Gunzip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD_BYTES = 4096
_JSON_HEAD_BYTES = 2**20
_LEAST_LIMIT = 2**30
_MOST_RATIO = 100
_USUAL_RATIO = 16
_GZIP = b"\x1f\x8b"
_UNRELATED = ("neither a trace ", "JSON, but neither a Kineto trace ")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_RANK = re.compile(r"rank[-_]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,7})(?:\.[A-Za-z_]\w*)*$")
_FLIGHT_RECORDER = re.compile(rb'"(entries|pg_config|pg_status|comm_lib_version|nccl_version)"\s*:')
_SAMPLES = re.compile(rb"\d{9,11}(\.\d+)?\r?\n\d+, *\d+|(?=[^\n]*\bindex\b)[^\n]*\b(utilization|clocks|power|temperature|memory)\.[a-z]+")
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
    SAMPLES = "device_samples"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that we know how to read; `work` is about how many bytes will have to be decoded."""

    path: Path
    kind: Kind
    bytes: int
    work: int


class Stream:
    """The decompressed bytes of a file.

    Reading stops with Unreadable once more than `limit` bytes came out: 100 times the file's size, at least 1 GiB.
    """

    def __init__(self, path: Path) -> None:
        """OSError where the file can't be opened."""
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self.packed = self._file.peek(2)[:2] == _GZIP
        self._source = Gunzip(self._file) if self.packed else self._file
        self.limit = max(_LEAST_LIMIT, _MOST_RATIO * self.size)
        self.position = 0

    @property
    def damage(self) -> str | None:
        """Why the data ended early; None where they did not."""
        return self._source.damage if isinstance(self._source, Gunzip) else None

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file."""
        self._file.close()

    def read(self, size: int) -> bytes:
        """Up to `size` further bytes, b"" at the end; Unreadable beyond the limit."""
        pieces: list[bytes] = []
        left = size
        while left and (piece := self._source.read(left)):
            pieces.append(piece)
            left -= len(piece)
        self.position += size - left
        if self.position > self.limit:
            raise Unreadable(f"more than {self.limit >> 20} MiB come out of {self.size} bytes: given up, as it looks like a zip bomb")
        return b"".join(pieces)

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


def find(paths: Iterable[Path]) -> Iterator[Path]:
    """The files of `paths`, each once; folders are walked without following links, hidden names in them left out.

    DtscopeError where one of `paths` does not exist.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DtscopeError(f"no file or folder {str(path)!r}: give a trace, a dump or a folder of them")
        for file in _walk(path) if path.is_dir() else (path,):
            if (real := file.absolute()) not in seen:
                seen.add(real)
                yield file


def _walk(path: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(names) if not name.startswith("."))


def identify(path: Path) -> Source:
    """What `path` is, by its content; Unreadable where we have no reader for it."""
    try:
        if not path.is_file():
            raise Unreadable("no regular file")
        with Stream(path) as stream:
            return Source(path, _kind(stream), stream.size, stream.size * (_USUAL_RATIO if stream.packed else 1))
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def is_known(path: Path) -> bool:
    """Whether `path` is a file that we have a reader for."""
    try:
        identify(path)
    except Unreadable:
        return False
    return True


def rank_of(path: Path) -> int | None:
    """The rank that a file's name tells (rank3, rank_3), or its folder's (rank-0003), or its last number (_dump_3), or None.

    A number of more than seven digits is a time, as in torch.profiler's worker0.1690857026123.pt.trace.json.
    """
    for name in (path.name, path.parent.name):
        if found := _RANK.findall(name):
            return int(found[-1])
    match = _LAST_NUMBER.search(path.name)
    return int(match[1]) if match else None


def _kind(stream: Stream) -> Kind:
    head = stream.read(_HEAD_BYTES)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        raise Unreadable(stream.damage or "empty file")
    if text[:1] in b"{[":
        return _kind_of_json(text) or _of_long_head(text + stream.read(_JSON_HEAD_BYTES), stream)
    if head[:2] in _UTF16:
        raise Unreadable("text in UTF-16, while Kineto and torch write UTF-8")
    if head[:1] == b"\x80":
        return Kind.FLIGHT_RECORDER
    if b"<graphs" in head:
        return Kind.GRAPH
    if b"<system" in head:
        return Kind.TOPOLOGY
    if b"\0" not in head and _NCCL_LOG.search(head + stream.read(_JSON_HEAD_BYTES)):
        return Kind.LOG
    if _SAMPLES.match(text) and b"\0" not in head:
        return Kind.SAMPLES
    raise Unreadable(f"{_UNRELATED[0]}nor a dump nor a file of NCCL or nvidia-smi")


def _kind_of_json(head: bytes) -> Kind | None:
    if b'"traceEvents"' in head or b'"schemaVersion"' in head or (head[:1] == b"[" and b'"ph"' in head):
        return Kind.KINETO
    if _FLIGHT_RECORDER.search(head):
        return Kind.FLIGHT_RECORDER
    return None


def _of_long_head(head: bytes, stream: Stream) -> Kind:
    """What begins like JSON, as do also the lines that launchers mark: [rank0]:, [default0]:, a time."""
    if kind := _kind_of_json(head):
        return kind
    if b"\0" not in head and _NCCL_LOG.search(head):
        return Kind.LOG
    why = f": {stream.damage}" if stream.damage else ""
    raise Unreadable(f"{_UNRELATED[1]}nor a Flight Recorder dump{why}")


def unrelated(reason: str) -> bool:
    """Whether a file is unreadable because it is nothing of ours, as folders hold many."""
    return reason.startswith(_UNRELATED)
