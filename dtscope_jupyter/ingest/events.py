# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Kineto JSON, read piece by piece: batches of events, and what stands around them.

A piece ends behind an event. Where that is, is guessed from the last `}, {` and proved by decoding: text from
the end of one event up to a brace inside another is never valid JSON.
"""

from __future__ import annotations

import re
from decimal import Decimal  # noqa: TC003 - msgspec looks it up
from typing import TYPE_CHECKING, Any, Union

import msgspec

from dtscope_jupyter.ingest.files import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtscope_jupyter.ingest.files import Stream

PIECE_BYTES = 2**19
MAX_EVENT_BYTES = 64 * 2**20
_HEAD = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}(\s*,\s*)\{")
_TRIES = 8
_PHASES = "BEIiCbneSTpFstfPNODMVvRcaA(){}"


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that we use, under Kineto's names."""

    correlation: int | None = None
    external: int | None = msgspec.field(name="External id", default=None)
    bytes: int | float | None = None
    collective: str | None = msgspec.field(name="Collective name", default=None)
    in_elements: int | None = msgspec.field(name="In msg nelems", default=None)
    out_elements: int | None = msgspec.field(name="Out msg nelems", default=None)
    group_size: int | None = msgspec.field(name="Group size", default=None)
    dtype: str | None = None
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    description: str | None = msgspec.field(name="Process Group Description", default=None)
    ranks: str | list[int] | None = msgspec.field(name="Process Group Ranks", default=None)
    seq: int | None = msgspec.field(name="Seq", default=None)
    source: int | None = msgspec.field(name="Src Rank", default=None)
    destination: int | None = msgspec.field(name="Dst Rank", default=None)
    asynchronous: bool | None = msgspec.field(name="Is asynchronized op", default=None)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event ("ph": "X"); times in microseconds since the trace's base, as written."""

    cat: str = ""
    name: str = ""
    ts: int | float | None = None
    dur: int | float | None = None
    tid: int | str | None = None
    args: Args | None = None


class BareEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event whose arguments are of no use, as they are not what Kineto writes."""

    cat: str = ""
    name: str = ""
    ts: int | float | None = None
    dur: int | float | None = None
    tid: int | str | None = None


class ExactEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """The times alone, in decimal: from 2**43 us a float's step is above 1 ns."""

    ts: Decimal | None = None
    dur: Decimal | None = None


_OTHERS = tuple(msgspec.defstruct(f"Phase{i}", [], tag_field="ph", tag=phase, gc=False) for i, phase in enumerate(_PHASES))
_EVENTS = msgspec.json.Decoder(list[Union[(Event, *_OTHERS)]])  # type: ignore[valid-type]
_EVENT = msgspec.json.Decoder(Union[(Event, *_OTHERS)])
_BARE = msgspec.json.Decoder(Union[(BareEvent, *_OTHERS)])
_EXACT = msgspec.json.Decoder(list[Union[(ExactEvent, *_OTHERS)]])  # type: ignore[valid-type]
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_AROUND = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Batch:
    """Some events in file order: `events` are the complete ones, `skipped` counts what could not be decoded."""

    def __init__(self, text: bytes) -> None:
        """`text` is a JSON array; msgspec.DecodeError where it is no valid JSON."""
        self._texts = [text]
        self.skipped = 0
        try:
            found = _EVENTS.decode(text)
        except msgspec.ValidationError:
            found = self._one_by_one(_RAWS.decode(text))
        self.events: list[Event] = [event for event in found if type(event) is Event]

    def exact(self) -> list[ExactEvent]:
        """The times of `events`, exactly as written."""
        found = (event for text in self._texts for event in _EXACT.decode(text))
        return [event for event in found if type(event) is ExactEvent]

    def _one_by_one(self, raws: list[msgspec.Raw]) -> list[Any]:
        pairs = [(event, raw) for raw in raws if (event := _leniently(raw)) is not None]
        self.skipped = len(raws) - len(pairs)
        self._texts = [b"[" + bytes(raw) + b"]" for _, raw in pairs]
        return [event for event, _ in pairs]


def _leniently(raw: msgspec.Raw) -> Any:
    """The event, without arguments where they are no good; None where it is no event."""
    try:
        return _EVENT.decode(raw)
    except msgspec.ValidationError:
        pass
    try:
        bare = _BARE.decode(raw)
    except msgspec.ValidationError:
        return None
    return Event(**msgspec.structs.asdict(bare)) if type(bare) is BareEvent else bare


class Reader:
    """Reads one trace; after the last batch `around` holds the other top-level keys and `damage` why it ended early."""

    def __init__(self, stream: Stream) -> None:
        """`stream` stands at the file's beginning."""
        self._stream = stream
        self.around: dict[str, Any] = {}
        self.damage: str | None = None

    def batches(self) -> Iterator[Batch]:
        """The events in file order, some MiB of text at a time; Unreadable where there is no list of events."""
        buffer = self._head()
        while piece := self._stream.read(PIECE_BYTES):
            buffer += piece
            if len(buffer) < PIECE_BYTES:
                continue
            cut = self._cut(buffer)
            if cut is None:
                if len(buffer) > MAX_EVENT_BYTES:
                    raise Unreadable(f"no event ends within {MAX_EVENT_BYTES >> 20} MiB")
                continue
            batch, end = cut
            buffer = buffer[end:]
            yield batch
        yield self._tail(buffer)

    def _head(self) -> bytes:
        head = b""
        while piece := self._stream.read(PIECE_BYTES):
            head += piece
            if match := _HEAD.search(head):
                self._keep(head[: match.end()] + b"]}")
                return head[match.end() :]
            if head.lstrip()[:1] == b"[":
                return head.lstrip()[1:]
            if len(head) > MAX_EVENT_BYTES:
                break
        raise Unreadable("no list of traceEvents" + (f": {self._stream.damage}" if self._stream.damage else ""))

    def _keep(self, text: bytes) -> None:
        try:
            around = _AROUND.decode(text)
        except msgspec.DecodeError as error:
            raise Unreadable(f"no JSON object around traceEvents: {error}") from error
        around.pop("traceEvents", None)
        self.around |= {key: msgspec.json.decode(value) for key, value in around.items()}

    def _cut(self, buffer: bytes) -> tuple[Batch, int] | None:
        """The batch of the whole events in `buffer`, and where the next event begins; None where none ends."""
        for match in _last_boundaries(buffer):
            try:
                return Batch(b"[%b]" % buffer[: match.start() + 1]), match.end() - 1
            except msgspec.DecodeError:
                continue
        return None

    def _tail(self, buffer: bytes) -> Batch:
        for opening in (b'{"traceEvents":[', b"["):
            try:
                return self._close(opening + buffer)
            except msgspec.DecodeError:
                continue
        self.damage = self._stream.damage or "the JSON ends early or is damaged"
        return self._salvage(buffer)

    def _close(self, text: bytes) -> Batch:
        if text[:1] == b"[":
            return Batch(text)
        around = _AROUND.decode(text)
        batch = Batch(bytes(around["traceEvents"]))
        self._keep(text)
        return batch

    def _salvage(self, buffer: bytes) -> Batch:
        """The events before the first place that is no JSON."""
        end = len(buffer)
        while end > 0:
            match = next(iter(_last_boundaries(buffer[:end])), None)
            if match is None:
                break
            try:
                return Batch(b"[%b]" % buffer[: match.start() + 1])
            except msgspec.DecodeError as error:
                end = min(match.start(), _position(error, match.start()))
        return Batch(b"[]")


def _last_boundaries(buffer: bytes) -> list[re.Match[bytes]]:
    """The last few places that may lie between two events, last first."""
    window = 2**14
    while True:
        found = list(_BOUNDARY.finditer(buffer, max(0, len(buffer) - window)))
        if found or window >= len(buffer):
            return found[: -_TRIES - 1 : -1]
        window *= 16


def _position(error: msgspec.DecodeError, default: int) -> int:
    """Where decoding failed, by the error's text; `default` where it doesn't say."""
    match = re.search(r"\(byte (\d+)\)", str(error))
    return int(match[1]) if match else default
