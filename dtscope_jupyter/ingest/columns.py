# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Events as columns: numpy arrays a category, names as codes into one dictionary.

Times are int64 nanoseconds since the trace's base. -1 stands for an absent correlation, bytes, thread or stream.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from dtscope_jupyter.ingest.events import Args, Batch, Event
    from dtscope_jupyter.intervals import Ints

Bools: TypeAlias = npt.NDArray[np.bool_]

_MOST = 2**63 - 1
_MOST_US = 2**51
_FLOAT_EXACT_US = 2**43
_NO_TIME = -(2**63)
ABSENT = -1


class SpanKind(IntEnum):
    """Codes of spans.kind."""

    compute = 0
    comm = 1
    memcpy = 2
    memset = 3
    cpu_op = 4
    launch = 5
    annotation = 6
    sync = 7
    python = 8


_KINDS = {
    "kernel": SpanKind.compute,
    "gpu_memcpy": SpanKind.memcpy,
    "gpu_memset": SpanKind.memset,
    "gpu_user_annotation": SpanKind.annotation,
    "cuda_sync": SpanKind.sync,
    "memcpy": SpanKind.memcpy,
    "memset": SpanKind.memset,
    "cpu_op": SpanKind.cpu_op,
    "operator": SpanKind.cpu_op,
    "user_annotation": SpanKind.annotation,
    "python_function": SpanKind.python,
    "runtime": SpanKind.launch,
}
_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "memcpy", "memset"))
_COMM_CALLS = ("record_param_comms", "nccl:", "c10d::", "gloo:")
_NUMBERED = re.compile(r"(?:stream )?(\d{1,18})", re.ASCII)
_UNUSED = -1
_ON_DEVICE = 16
_NCCL, _WAITS, _COMM_CALL = 1, 2, 4


class Names(dict[str, int]):
    """Codes of names in order of first sight; `flags` says by code what kind of name it is."""

    def __init__(self) -> None:
        """No name yet."""
        super().__init__()
        self.flags = array("b")

    def __missing__(self, name: str) -> int:
        """The next code."""
        self[name] = code = len(self)
        flags = _NCCL if "nccl" in name.lower() else 0
        flags |= _WAITS if "Synchronize" in name else 0
        self.flags.append(flags | (_COMM_CALL if name.startswith(_COMM_CALLS) else 0))
        return code

    def having(self, flag: int) -> Bools:
        """Which codes have `flag`."""
        flags: Bools = (np.array(self.flags, np.int8) & flag) != 0
        return flags


class _Categories(dict[str, int]):
    """Codes of categories: the kind, plus _ON_DEVICE for the device's side; _UNUSED for what leaves no row."""

    def __missing__(self, category: str) -> int:
        lower = category.lower()
        if lower.endswith(("_runtime", "_driver")):
            lower = "runtime"
        kind = _KINDS.get(lower, _UNUSED)
        self[category] = code = int(kind) + _ON_DEVICE * (lower in _DEVICE)
        return code


_CATEGORIES = _Categories()


@dataclass(slots=True)
class Spans:
    """Spans of one side, host or device; all arrays have one length. `where` is the thread or the stream."""

    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    start: Ints
    end: Ints
    where: Ints
    correlation: Ints
    bytes: Ints

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.kind)

    def chosen(self, rows: Any) -> Spans:
        """The spans of some rows."""
        return Spans(*(getattr(self, name)[rows] for name in Spans.__slots__))


@dataclass(slots=True)
class Side:
    """Gathers the spans of one side; `args` holds the arguments of those that tell about communication, by row."""

    parts: list[Spans] = field(default_factory=list)
    rows: int = 0
    args: dict[int, Args] = field(default_factory=dict)

    def add(self, part: Spans) -> None:
        """Appends `part`."""
        self.parts.append(part)
        self.rows += len(part)

    def joined(self) -> Spans:
        """All spans in order of their addition; gives the parts up, column by column, so that never two of all are in memory."""
        parts, self.parts = self.parts, []
        if not parts:
            return _nothing()
        columns = []
        for name in Spans.__slots__:
            columns.append(np.concatenate([getattr(part, name) for part in parts]))
            for part in parts:
                delattr(part, name)
        return Spans(*columns)


@dataclass(slots=True)
class Columns:
    """One trace's spans; the counts say what was left out."""

    names: Names = field(default_factory=Names)
    host: Side = field(default_factory=Side)
    device: Side = field(default_factory=Side)
    events: int = 0
    undecodable: int = 0
    untimed: int = 0
    negative: int = 0

    def add(self, batch: Batch) -> None:
        """Takes in a batch of events; those of no use to us (flow arrows, names of threads, overheads) leave no row."""
        self.events += len(batch.events)
        self.undecodable += batch.skipped
        events = batch.events
        category = np.array([_CATEGORIES[event.cat] for event in events], np.int8)
        name = np.array([self.names[event.name] for event in events], np.int32)
        kind = self._refined(category % _ON_DEVICE, name)
        start, duration = _times(batch)
        used = self._used(category, start, duration)
        whole = Spans(
            kind,
            name,
            start,
            start + duration,
            _places([event.tid for event in events]),
            _integers([event.args.correlation for event in events]),
            _sizes(events, kind),
        )
        for side, device in ((self.host, False), (self.device, True)):
            rows = np.flatnonzero(used & ((category >= _ON_DEVICE) == device))
            telling = kind[rows] == SpanKind.comm if device else self.names.having(_COMM_CALL)[name[rows]]
            _keep_args(side, events, rows, telling)
            side.add(whole.chosen(rows))

    def _used(self, category: npt.NDArray[np.int8], start: Ints, duration: Ints) -> Bools:
        wanted = category != _UNUSED
        timed = (start != _NO_TIME) & (duration != _NO_TIME)
        self.untimed += int((wanted & ~timed).sum())
        self.negative += int((wanted & timed & (duration < 0)).sum())
        used: Bools = wanted & timed & (duration >= 0)
        return used

    def _refined(self, kind: npt.NDArray[np.int8], name: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
        kind = np.where((kind == SpanKind.compute) & self.names.having(_NCCL)[name], np.int8(SpanKind.comm), kind)
        return np.where((kind == SpanKind.launch) & self.names.having(_WAITS)[name], np.int8(SpanKind.sync), kind)


def _nothing() -> Spans:
    none = np.zeros(0, np.int64)
    return Spans(none.astype(np.int8), none.astype(np.int32), none, none, none, none, none)


def _keep_args(side: Side, events: list[Event], rows: Ints, telling: Bools) -> None:
    for place in np.flatnonzero(telling).tolist():
        args = events[rows[place]].args
        owned = msgspec.structs.replace(args, shapes=args.shapes.copy(), types=args.types.copy())  # else they keep the whole text
        side.args[side.rows + place] = owned


def _sizes(events: list[Event], kind: npt.NDArray[np.int8]) -> Ints:
    sizes = np.full(len(events), ABSENT)
    rows = np.flatnonzero((kind == SpanKind.memcpy) | (kind == SpanKind.memset))
    sizes[rows] = _integers([events[row].args.bytes for row in rows.tolist()])
    return sizes


def _integers(values: list[Any]) -> Ints:
    """The values as int64, ABSENT for what is none."""
    try:
        return np.array(values, np.int64)
    except (ValueError, TypeError, OverflowError):
        whole = (int(v) if isinstance(v, int | float) and -_MOST <= v <= _MOST else ABSENT for v in values)
        return np.fromiter(whole, np.int64, len(values))


def _places(values: list[int | str | None]) -> Ints:
    """Threads and streams; until torch 1.10 they were texts, "123" and "stream 7"."""
    try:
        return np.array(values, np.int64)
    except (ValueError, TypeError, OverflowError):
        return _integers([int(match[1]) if isinstance(v, str) and (match := _NUMBERED.fullmatch(v)) else v for v in values])


def _times(batch: Batch) -> tuple[Ints, Ints]:
    """Starts and durations in ns, _NO_TIME for what is missing or absurd."""
    try:
        return _nanoseconds([event.ts for event in batch.events]), _nanoseconds([event.dur for event in batch.events])
    except _InexactError:
        exact = batch.exact()
        return _decimal_nanoseconds([event.ts for event in exact]), _decimal_nanoseconds([event.dur for event in exact])


class _InexactError(Exception):
    """A float holds a time to less than 1 ns."""


def _nanoseconds(microseconds: list[int | float | None]) -> Ints:
    """Microseconds, whole or with a fraction, as int64 ns: exact, or _InexactError.

    Below 2**43 us a double is at most 2**-11 us = 0.49 ns from the decimal that was written, so that rounding
    1000 times its value gives back the written nanosecond; whole microseconds are exact as integers.
    """
    try:
        values = np.array(microseconds, None if microseconds else np.int64)
        if values.dtype != np.int64:
            values = np.array(microseconds, np.float64)
    except OverflowError:
        return _decimal_nanoseconds(microseconds)
    if values.dtype == np.int64:
        return np.where(np.abs(values) <= _MOST_US, values * 1000, _NO_TIME)
    if (np.abs(values) >= _FLOAT_EXACT_US).any():
        return _decimal_nanoseconds(microseconds)
    return np.where(np.isnan(values), _NO_TIME, np.rint(values * 1000)).astype(np.int64)


def _decimal_nanoseconds(microseconds: Sequence[int | float | Decimal | None]) -> Ints:
    return np.fromiter((_exact(value) for value in microseconds), np.int64, len(microseconds))


def _exact(value: float | Decimal | None) -> int:
    if value is None or not -_MOST_US <= value <= _MOST_US:
        return _NO_TIME
    if isinstance(value, float) and abs(value) >= _FLOAT_EXACT_US:
        raise _InexactError
    return round(value * 1000)
