# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Events of a trace, as many as a piece of text holds, decoded into what we use of them."""

from __future__ import annotations

import re
from decimal import Decimal  # noqa: TC003 - msgspec looks it up
from typing import Any, Union

import msgspec

NO_JSON = (msgspec.DecodeError, RecursionError)
"""What decoding raises where text is no JSON (ValidationError, where it is other JSON, is one of them)."""
_NO_NUMBER = re.compile(rb"(:\s*)-?(?:nan|inf|NaN|Infinity)(?=\s*[,}])")
_SURROGATE = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\\\)|\\u[dD][89a-fA-F]..")
_PHASES = "BEIiCbneSTpFstfPNODMVvRcaA(){}"


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an event that we use, under Kineto's names."""

    correlation: int = -1
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
    old_external: int | None = msgspec.field(name="external id", default=None)

    @property
    def external_id(self) -> int | None:
        """Joins what a device ran with the host's call; until torch 1.10 kernels had it in small letters, and 0 for none."""
        return self.external if self.external is not None else self.old_external or None


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event ("ph": "X"); times in microseconds since the trace's base, as written."""

    cat: str = ""
    name: str = ""
    ts: int | float | None = None
    dur: int | float | None = None
    tid: int | str | None = None
    args: Args = Args()


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


class Batch:
    """Some events in file order: `events` are the complete ones, `skipped` counts what could not be decoded."""

    def __init__(self, text: bytes | memoryview) -> None:
        """`text` is a JSON array; one of NO_JSON where it is not, but that numbers may be nan or inf."""
        self.skipped = 0
        try:
            found = self._decoded(text)
        except NO_JSON:
            if (better := mended(text)) == text:
                raise
            found = self._decoded(better)
        self.events: list[Event] = [event for event in found if type(event) is Event]

    def exact(self) -> list[ExactEvent]:
        """The times of `events`, exactly as written."""
        found = (event for text in self._texts for event in _EXACT.decode(text))
        return [event for event in found if type(event) is ExactEvent]

    def _decoded(self, text: bytes | memoryview) -> list[Any]:
        self._texts: list[bytes | memoryview] = [text]
        try:
            return _EVENTS.decode(text)
        except msgspec.ValidationError:
            return self._one_by_one(_RAWS.decode(text))

    def _one_by_one(self, raws: list[msgspec.Raw]) -> list[Any]:
        pairs = [(event, raw) for raw in raws if (event := _leniently(raw)) is not None]
        self.skipped = len(raws) - len(pairs)
        self._texts = [b"[" + bytes(raw) + b"]" for _, raw in pairs]
        return [event for event, _ in pairs]


def mended(text: bytes | memoryview) -> bytes:
    """With null for nan and inf, which old Kineto writes as numbers, and a mark for what is no character of Unicode."""
    whole = bytes(text).decode("utf-8", "replace").encode()
    return _SURROGATE.sub(lambda match: match[1] or rb"\ufffd", _NO_NUMBER.sub(rb"\1null", whole))


def _leniently(raw: msgspec.Raw) -> Any:
    """The event, without arguments where they are no good; None where it is no event."""
    try:
        return _EVENT.decode(raw)
    except (msgspec.ValidationError, RecursionError):
        pass
    try:
        bare = _BARE.decode(raw)
    except (msgspec.ValidationError, RecursionError):
        return None
    return Event(**msgspec.structs.asdict(bare)) if type(bare) is BareEvent else bare
