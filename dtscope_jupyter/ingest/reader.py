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
_CLOSING = ord("]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TRIES, _SALVAGES = 8, 64
_AROUND = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Reader:
    """Reads one trace; after the last batch `around` holds the other top-level keys and `damage` why it ended early."""

    def __init__(self, stream: Stream) -> None:
        """`stream` stands at the file's beginning."""
        self._stream = stream
        self.around: dict[str, Any] = {}
        self.damage: str | None = None

    def batches(self) -> Iterator[Batch]:
        """The events in file order, half a MiB of text at a time; Unreadable where there is no list of events."""
        buffer = self._head()
        while piece := self._stream.read(PIECE_BYTES):
            buffer = bytearray().join((buffer, piece))
            if len(buffer) < PIECE_BYTES:
                continue
            if len(buffer) > MAX_EVENT_BYTES:
                self.damage = f"no event ends within {MAX_EVENT_BYTES >> 20} MiB"
                yield _salvaged(buffer)
                return
            if (cut := _cut(buffer)) is not None:
                batch, end = cut
                yield batch
                del batch  # else two of them are in memory
                buffer = bytearray().join((b"[", memoryview(buffer)[end:]))
        yield self._tail(bytes(buffer))

    def _head(self) -> bytes | bytearray:
        """The list from its opening bracket on, of the first piece that has it."""
        head = b""
        while len(head) <= MAX_EVENT_BYTES and (piece := self._stream.read(PIECE_BYTES)):
            head = (head + piece).removeprefix(_BYTE_ORDER_MARK).lstrip()
            if head[:1] == b"[":
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
        for closing in (self._closed, Batch, lambda text: self._closed(mended(text))):
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


def _cut(buffer: bytearray) -> tuple[Batch, int] | None:
    """The batch of the whole events in `buffer`, and where the next event begins; None where none ends.

    The list is closed in place, by a bracket behind its last event: copying it would take as long as a fifth of decoding.
    """
    for match in _last_boundaries(buffer):
        behind, kept = match.start() + 1, buffer[match.start() + 1]
        buffer[behind] = _CLOSING
        try:
            return Batch(memoryview(buffer)[: behind + 1]), match.end() - 1
        except NO_JSON:
            buffer[behind] = kept
    return None


def _salvaged(buffer: bytearray | bytes) -> Batch:
    """The events before the first place that is no JSON, as far as a few tries find them."""
    end = len(buffer)
    for _ in range(_SALVAGES):
        match = next(iter(_last_boundaries(buffer[:end])), None)
        if match is None:
            break
        try:
            return Batch(_listed(buffer, match))
        except NO_JSON as error:
            end = min(match.start(), _position(error, match.start()))
    return Batch(b"[]")


def _listed(buffer: bytes | bytearray, match: re.Match[bytes]) -> bytes:
    """The events up to a boundary as a whole list; `buffer` begins with the list's bracket."""
    return b"".join((memoryview(buffer)[: match.start() + 1], b"]"))


def _last_boundaries(buffer: bytes | bytearray) -> list[re.Match[bytes]]:
    """The last few places that may lie between two events, last first."""
    window = 2**14
    while True:
        found = list(_BOUNDARY.finditer(buffer, max(0, len(buffer) - window)))
        if found or window >= len(buffer):
            return found[: -_TRIES - 1 : -1]
        window *= 16


def _position(error: Exception, default: int) -> int:
    """Where decoding failed, by the error's text; `default` where it doesn't say."""
    match = re.search(r"\(byte (\d+)\)", str(error))
    return int(match[1]) if match else default
