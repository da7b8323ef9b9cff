# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Kineto JSON, read piece by piece: batches of events, and what stands around them.

A piece ends behind an event. Where that is, is guessed from the last `}, {` and proved by decoding: text from
the end of one event up to a brace inside another is never valid JSON.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from dtscope_jupyter.ingest.events import NO_JSON, Batch, mended
from dtscope_jupyter.ingest.files import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtscope_jupyter.ingest.files import Stream

PIECE_BYTES = 2**19
MAX_EVENT_BYTES = 64 * 2**20
_HEAD = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}(\s*,\s*)\{")
_READ_BYTES = 2**16
_OPENING, _CLOSING = b"[]"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TRIES, _SALVAGES = 8, 64
_OVERLAP = 2**10
_AROUND = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Reader:
    """Reads one trace; after the last batch `around` holds the other top-level keys and `damage` why it ended early."""

    def __init__(self, stream: Stream) -> None:
        """`stream` stands at the file's beginning."""
        self._stream = stream
        self._bare = False
        self.around: dict[str, Any] = {}
        self.damage: str | None = None

    def batches(self) -> Iterator[Batch]:
        """The events in file order, half a MiB of text at a time; Unreadable where there is no list of events.

        A batch is good until the next one: their text is in the same place.
        """
        text = _Text(self._head())
        searched = 0
        while text.fill(self._stream):
            if text.length < PIECE_BYTES:
                continue
            if text.length > MAX_EVENT_BYTES:
                self.damage = f"no event ends within {MAX_EVENT_BYTES >> 20} MiB"
                yield _salvaged(text.whole())
                return
            if (cut := _cut(text, searched)) is None:
                searched = text.length
                continue
            batch, end = cut
            yield batch
            del batch  # else two of them are in memory
            text.drop(end)
            searched = 0
        yield self._tail(text.whole())

    def _head(self) -> bytes:
        """The list from its opening bracket on, of the first piece that has it."""
        head = b""
        while len(head) <= MAX_EVENT_BYTES and (piece := self._stream.read(PIECE_BYTES)):
            head = (head + piece).removeprefix(_BYTE_ORDER_MARK).lstrip()
            if head[:1] == b"[":
                self._bare = True
                return head
            if match := _HEAD.search(head):
                self._keep(head[: match.end()] + b"]}")
                return head[match.end() - 1 :]
        raise Unreadable("no list of traceEvents" + (f": {self._stream.damage}" if self._stream.damage else ""))

    def _keep(self, text: bytes) -> None:
        try:
            around = _AROUND.decode(text)
            around.pop("traceEvents", None)
            self.around |= {key: msgspec.json.decode(value) for key, value in around.items()}
        except NO_JSON as error:
            raise Unreadable(f"no JSON object around traceEvents: {error}") from error

    def _tail(self, buffer: bytes) -> Batch:
        """The last events, with what follows the list; or what there is of them."""
        for closing in (Batch,) if self._bare else (self._closed, lambda text: self._closed(mended(text))):
            try:
                return closing(buffer)
            except NO_JSON:
                continue
        self.damage = self._stream.damage or "the JSON ends early or is damaged"
        return _salvaged(buffer)

    def _closed(self, text: bytes) -> Batch:
        around = _AROUND.decode(b'{"traceEvents":' + text)
        batch = Batch(bytes(around["traceEvents"]))
        self.around |= {key: msgspec.json.decode(value) for key, value in around.items() if key != "traceEvents"}
        return batch


class _Text:
    """What is to be decoded next, in memory that is used again: new pages for every piece would take a tenth of the time."""

    def __init__(self, begin: bytes) -> None:
        self.length = len(begin)
        self.data = bytearray(self.length + PIECE_BYTES)
        self.data[: self.length] = begin

    def fill(self, stream: Stream) -> bool:
        """Adds a piece from the stream; False where nothing is left of it."""
        if self.length + PIECE_BYTES > len(self.data):
            self.data = bytearray().join((self.data, bytes(len(self.data))))
        before = self.length
        while self.length - before < PIECE_BYTES and (part := stream.read(_READ_BYTES)):
            self.data[self.length : self.length + len(part)] = part
            self.length += len(part)
        return self.length > before

    def drop(self, end: int) -> None:
        """Takes away what lies before `end`; a bracket opens the list anew."""
        left = bytes(memoryview(self.data)[end : self.length])
        self.data[0] = _OPENING
        self.data[1 : 1 + len(left)] = left
        self.length = 1 + len(left)

    def whole(self) -> bytes:
        """All that is left."""
        return bytes(memoryview(self.data)[: self.length])


def _cut(text: _Text, searched: int) -> tuple[Batch, int] | None:
    """The batch of the whole events in `text`, and where the next event begins; None where none ends behind `searched`.

    The list is closed in place, by a bracket behind its last event: copying it would take as long as a fifth of decoding.
    """
    data = text.data
    for match in _last_boundaries(data, text.length, max(0, searched - _OVERLAP)):
        behind, kept = match.start() + 1, data[match.start() + 1]
        data[behind] = _CLOSING
        try:
            return Batch(memoryview(data)[: behind + 1]), match.end() - 1
        except NO_JSON:
            data[behind] = kept
    return None


def _salvaged(text: bytes) -> Batch:
    """The events before the first place that is no JSON, as far as a few tries find them."""
    if (whole := _whole(text)) is not None:
        return whole
    end = len(text)
    for _ in range(_SALVAGES):
        match = next(iter(_last_boundaries(text, end, 0)), None)
        if match is None:
            break
        try:
            return Batch(b"".join((memoryview(text)[: match.start() + 1], b"]")))
        except NO_JSON as error:
            end = min(match.start(), _position(error, match.start()))
    return Batch(b"[]")


def _whole(text: bytes) -> Batch | None:
    """The events up to one of the last closing braces, where the text was cut behind an event or goes on with something else."""
    end = len(text)
    for _ in range(_TRIES):
        if (brace := text.rfind(b"}", 0, end)) < 0:
            break
        try:
            return Batch(b"".join((memoryview(text)[: brace + 1], b"]")))
        except NO_JSON as error:
            end = min(brace, _position(error, brace))
    return None


def _last_boundaries(text: bytes | bytearray, length: int, begin: int) -> list[re.Match[bytes]]:
    """The last few places in the first `length` bytes, from `begin` on, that may lie between two events, last first."""
    window = 2**14
    while True:
        found = list(_BOUNDARY.finditer(text, max(begin, length - window), length))
        if found or window >= length - begin:
            return found[: -_TRIES - 1 : -1]
        window *= 16


def _position(error: Exception, default: int) -> int:
    """Where decoding failed, by the error's text; `default` where it doesn't say."""
    match = re.search(r"\(byte (\d+)\)", str(error))
    return int(match[1]) if match else default
