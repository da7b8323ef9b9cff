# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What ranks, collector and notebooks say to each other: a msgpack header, and a frame of plain bytes where there are some.

A *part* is a piece of one file of a rank folder. `table`: index entries and blocks (segments.py), appended at `before`;
`grow`: bytes of a file that only grows, at `before`; `whole`: a small JSON file, replaced. The ends that the collector
tells are what it has written, so a part that is sent twice is written once.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

PROTOCOL = 1
MAX_PARTS_BYTES = 2**20
MAX_MESSAGE_BYTES = 256 * 2**20 + 2**20
MAX_WHOLE_BYTES = 2**20

RUN = r"^(?!rank-\d|attempt-\d)[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
TABLE = r"^[a-z][a-z_]{0,31}\Z"
GROWING = re.compile(
    r"(log\.txt|trace-\d{1,9}\.json\.gz|stacks-[A-Za-z0-9_-]{1,64}\.txt|flight_recorder-[A-Za-z0-9_-]{1,64}\.(json|pkl))\Z"
)
WHOLE = ("run.json", "rank.json")

Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=10**7)]
Attempt = Annotated[int, msgspec.Meta(ge=0, lt=10**6)]
RunName = Annotated[str, msgspec.Meta(pattern=RUN)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=96)]
Ends = dict[Name, Natural]


class _Message(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """One kind of header; its tag is the name of its class."""


class Place(msgspec.Struct, array_like=True, frozen=True):
    """One rank folder of a run."""

    run: RunName
    attempt: Attempt
    rank: Rank


class Part(msgspec.Struct, array_like=True, frozen=True):
    """A piece of a file: `head` bytes of index entries and `size` bytes in all, in the order of the parts."""

    kind: Annotated[str, msgspec.Meta(pattern=r"^(table|grow|whole)\Z")]
    name: Name
    before: Natural
    head: Natural
    size: Natural


class Hello(_Message):
    """A rank: what follows is of `place`; `token` tells this rank process from another that names the same place."""

    protocol: int
    place: Place
    token: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]


class Welcome(_Message):
    """The collector: what it has of the place already."""

    ends: Ends


class Ship(_Message):
    """A rank: parts; their bytes are in the next frame."""

    number: Natural
    parts: Annotated[list[Part], msgspec.Meta(max_length=4096)]


class Ack(_Message):
    """The collector: message `number` is dealt with, and the named files end here now."""

    number: Natural
    ends: Ends


class Clock(_Message):
    """Anyone: tell your time; `sent` comes back as it is."""

    sent: int


class Time(_Message):
    """The collector's clock as the question came and as the answer went, ns of Unix time."""

    sent: int
    received: int
    replied: int


class Follow(_Message):
    """A notebook: what follows asks for `run` ("" is the newest); `have` are the ends of what it has, by folder and name."""

    protocol: int
    run: Annotated[str, msgspec.Meta(pattern=r"^\Z|" + RUN)]
    have: Annotated[dict[str, Ends], msgspec.Meta(max_length=10**6)]


class Following(_Message):
    """The collector: the run that is followed, and the others it holds."""

    run: RunName
    runs: list[str]


class More(_Message):
    """A notebook: send what is new, about `limit` bytes of it."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=16 * 2**20)]


class News(_Message):
    """The collector: parts and the folder of each; their bytes are in the next frame. Empty where nothing is new."""

    folders: list[Place]
    parts: list[Part]


class Who(_Message):
    """The collector: you have not said hello, or I was restarted."""


class Refused(_Message):
    """The collector: not done, and why; `retry` tells whether it may go later."""

    reason: str
    retry: bool


Request = Hello | Ship | Clock | Follow | More
Reply = Welcome | Ack | Time | Following | News | Who | Refused

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


def is_address(endpoint: str, least_port: int = 1) -> bool:
    """Whether `endpoint` is tcp://HOST:PORT (ZeroMQ would take the port modulo 65536)."""
    found = re.fullmatch(r"tcp://[^\s/]+:(\d{1,5})", endpoint)
    return found is not None and least_port <= int(found[1]) < 2**16


def split(parts: list[Part], payload: bytes | memoryview) -> list[tuple[Part, memoryview, memoryview]]:
    """Each part with its head and its body; ValueError where the payload is not of their size."""
    view, cut, place = memoryview(payload), [], 0
    if sum(part.size for part in parts) != len(view) or any(part.head > part.size for part in parts):
        message = f"{len(view)} bytes came where the header tells of {sum(part.size for part in parts)}"
        raise ValueError(message)
    for part in parts:
        cut.append((part, view[place : place + part.head], view[place + part.head : place + part.size]))
        place += part.size
    return cut


def folder_key(place: Place) -> str:
    """Names a rank folder within its run, as `Follow.have` does."""
    return f"{place.attempt}/{place.rank}"
