# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A Flight Recorder dump (versions 2.4 to 2.10, pickle or JSON, NCCL or gloo) -> collectives and groups.

Times: enqueue_ns is when the host called. start_ns and end_ns are null: `time_discovered_*` tell when a watchdog
looked, up to 100 ms late, so that neither they nor anything computed from them is a time of the collective. Where
timing was on, duration_ms is exact. What hangs shows in `state` and `seq` of the collectives, and in last_enqueued
and last_completed of `groups`, which also list the groups of a rank whose dump has no entry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from dtscope_jupyter.ingest import operations, rows
from dtscope_jupyter.ingest.communication import UNKNOWN_GROUP, ranks_in
from dtscope_jupyter.ingest.files import Stream, Unreadable, rank_of
from dtscope_jupyter.ingest.part import Part
from dtscope_jupyter.ingest.stacks import is_library
from dtscope_jupyter.ingest.unpickle import plain_value

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 512 * 2**20
_MOST_VALUES = 16 * 2**20
_PEER = re.compile(r"(\d+)(->|<-)(\d+)")
_TORCH_FILES = frozenset(("distributed.py", "distributed_c10d.py", "c10d_logger.py", "utils.py", "module.py", "_tensor.py", "graph.py"))
_STATES = ("scheduled", "started", "completed")


class Frame(msgspec.Struct):
    """A line of the stack that enqueued."""

    filename: str = ""
    line: int = 0


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class Entry(msgspec.Struct):
    """One collective, as the recorder writes it; absent where its version or backend lacks it."""

    pg_id: Number = 0
    process_group: list[str] = []
    collective_seq_id: Number | None = None
    p2p_seq_id: Number | None = None
    seq_id: Number | None = None
    profiling_name: str = ""
    time_created_ns: Number | None = None
    duration_ms: float | None = None
    input_sizes: list[Any] = []
    input_dtypes: list[str] = []
    output_sizes: list[Any] = []
    output_dtypes: list[str] = []
    state: str = ""
    retired: bool = False
    is_p2p: bool = False
    frames: list[Frame] = []


class Group(msgspec.Struct):
    """A process group's name, purpose and ranks ("[0, 1]")."""

    name: str = ""
    desc: str = ""
    ranks: str | list[int] = ""


class Status(msgspec.Struct):
    """How far a group got; -1 where unknown. JSON writes the numbers as text."""

    last_enqueued_collective: Number = -1
    last_started_collective: Number = -1
    last_completed_collective: Number = -1


class Dump(msgspec.Struct):
    """A whole dump; `entries` one by one, so that a bad one costs only itself."""

    version: str = ""
    pg_config: dict[str, Group] = {}
    pg_status: dict[str, Status] = {}
    entries: list[Any] = []


def read(path: Path, rank: int | None = None) -> Part:
    """The tables of one dump; Unreadable where it is none."""
    with Stream(path) as stream:
        data = stream.rest(_MOST_BYTES)
        damage = stream.damage
    if damage:
        raise Unreadable(damage)
    value = plain_value(data) if data[:1] == b"\x80" else _json(data)
    if not isinstance(value, dict) or not value.keys() & {"entries", "pg_config", "pg_status"}:
        raise Unreadable("no Flight Recorder dump: neither entries nor pg_config nor pg_status")
    try:
        dump = msgspec.convert(value, Dump, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(f"no Flight Recorder dump: {error}") from error
    told = rank if rank is not None else rank_of(path)
    return _part(path, dump, told if told is not None else 0, rank_given=told is not None)


def _part(path: Path, dump: Dump, rank: int, *, rank_given: bool) -> Part:
    entries, bad = _entries(dump.entries)
    names = _group_names(dump, entries)
    ranks = {name: ranks_in(group.ranks) for name, group in _groups(dump, entries).items()}
    found = [_row(entry, rank, names, ranks) for entry in entries]
    groups = [
        {"rank": rank, "process_group": name, "description": group.desc or None, "ranks": ranks[name], **_progress(dump, names, name)}
        for name, group in _groups(dump, entries).items()
    ]
    backend = next((entry.profiling_name.partition(":")[0] for entry in entries if ":" in entry.profiling_name), None)
    for group_row in groups:
        group_row["backend"] = backend
    notes = (
        [rows.note("damaged", path.name, f"{bad} entries are no such thing as Flight Recorder writes: left out", rank, bad)] if bad else []
    )
    if not dump.version.startswith("2."):
        notes.append(rows.note("warning", path.name, f"dump of version {dump.version or 'unknown'!s}, read as 2.10", rank))
    if not rank_given:
        notes.append(rows.note("warning", path.name, "the file name tells no rank", rank))
    tables = {"collectives": rows.from_rows("collectives", found), "groups": rows.from_rows("groups", groups)}
    times = [row["enqueue_ns"] for row in found if row["enqueue_ns"] is not None]
    world = max((max(members) + 1 for members in ranks.values() if members), default=None)
    return Part(path, tables, rank, rank_given, world, min(times, default=None), max(times, default=None), notes)


def _json(data: bytes) -> Any:
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise Unreadable(f"more than {_MOST_VALUES >> 20} Mi values, which no dump holds: given up")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"no whole JSON: {error}") from error


def _entries(values: list[Any]) -> tuple[list[Entry], int]:
    found, bad = [], 0
    for value in values:
        try:
            found.append(msgspec.convert(value, Entry, strict=False))
        except (msgspec.ValidationError, RecursionError):
            bad += 1
    return found, bad


def _name_of(entry: Entry) -> str:
    return entry.process_group[0] if entry.process_group else str(entry.pg_id)


def _groups(dump: Dump, entries: list[Entry]) -> dict[str, Group]:
    """The groups by name. gloo keeps one group under the name '' that new_group overwrites: entries know better."""
    groups = {name: group for name, group in dump.pg_config.items() if name}
    for entry in entries:
        description = entry.process_group[1] if len(entry.process_group) > 1 else ""
        groups.setdefault(_name_of(entry), Group(desc=description))
    return groups


def _group_names(dump: Dump, entries: list[Entry]) -> dict[str, str]:
    """Names by pg_id, which pg_status goes by.

    Entries tell both. For groups without one: ids and names both count up as groups are made, so where there are as
    many ids as names and no entry contradicts, they go together in order.
    """
    told = {str(entry.pg_id): _name_of(entry) for entry in entries}
    ids, names = list(dump.pg_status), [name for name in dump.pg_config if name]
    if len(ids) == len(names) and all(text.isdecimal() for text in ids + names):
        ordered = dict(zip(sorted(ids, key=int), sorted(names, key=int), strict=True))
        if told.items() <= ordered.items():
            return ordered
    return told


def _progress(dump: Dump, names: dict[str, str], name: str) -> dict[str, int | None]:
    status = next((status for pg_id, status in dump.pg_status.items() if names.get(pg_id) == name), Status())
    fields = ("last_enqueued", "last_started", "last_completed")
    values = (getattr(status, f"{field}_collective") for field in fields)
    return {field: value if value >= 0 else None for field, value in zip(fields, values, strict=True)}


def _row(entry: Entry, rank: int, names: dict[str, str], ranks: dict[str, list[int] | None]) -> dict[str, Any]:
    name = operations.operation(entry.profiling_name)
    group = _name_of(entry) or names.get(str(entry.pg_id), UNKNOWN_GROUP)
    members = ranks.get(group)
    dtype, size = operations.dtype(next(iter(entry.input_dtypes), None))
    sent, received = (_bytes(sizes, size) for sizes in (entry.input_sizes, entry.output_sizes))
    return {
        "rank": rank,
        "seq": entry.p2p_seq_id if entry.is_p2p else _first(entry.collective_seq_id, entry.seq_id),
        "process_group": group,
        "group_size": len(members) if members else None,
        "operation": name,
        "bytes": operations.volume(name, sent, received, len(members) if members else None),
        "dtype": dtype,
        "shape": str(entry.input_sizes[0]) if entry.input_sizes else None,
        "enqueue_ns": entry.time_created_ns or None,
        "state": _state(entry),
        "peer": _peer(entry, members),
        "line": _line(entry.frames),
        "source": "flight_recorder",
        "duration_ms": entry.duration_ms,
    }


def _state(entry: Entry) -> str | None:
    """As dumped, but that gloo never gets beyond scheduled: there `retired` says that it is over."""
    if entry.profiling_name.startswith("gloo:") and entry.retired:
        return "completed"
    return entry.state if entry.state in _STATES else None


def _bytes(sizes: list[Any], size: int | None) -> int | None:
    count = operations.elements(sizes) if sizes else None
    return count * size if count is not None and size else None


def _peer(entry: Entry, members: list[int] | None) -> int | None:
    """The global rank at the other end of "send 0->1" or "recv 1<-0", whose numbers count within the group."""
    match = _PEER.search(entry.profiling_name)
    if match is None:
        return None
    peer = int(match[3])
    return members[peer] if members and peer < len(members) else None


def _line(frames: list[Frame]) -> str | None:
    """The innermost line that is not torch's own."""
    user = next((f for f in frames if f.filename and not is_library(f.filename) and f.filename not in _TORCH_FILES), None)
    return f"{user.filename}:{user.line}" if user else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
