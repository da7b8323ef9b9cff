# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One Kineto trace -> spans, collectives, steps, groups, clocks, host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dtscope_jupyter.ingest import buckets, communication, operations, repeated, rows, steps
from dtscope_jupyter.ingest.columns import ABSENT, Columns, SpanKind
from dtscope_jupyter.ingest.communication import MOST_RANKS
from dtscope_jupyter.ingest.files import Stream, Unreadable, rank_of
from dtscope_jupyter.ingest.part import Part
from dtscope_jupyter.ingest.reader import Reader
from dtscope_jupyter.ingest.stacks import Stacks
from dtscope_jupyter.ingest.timeline import PHASES, timeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dtscope_jupyter.ingest.columns import Spans
    from dtscope_jupyter.intervals import Ints

Codes: TypeAlias = npt.NDArray[Any]

_WINDOW = re.compile(r"trace-(\d{1,12})\.json(\.gz)?")
_COPY = re.compile(r"(?P<way>[HDPA]to[HDPA])(?: \((?P<from>\w+) -> (?P<to>\w+)\))?|Copy(?P<rfrom>Host|Device)To(?P<rto>Host|Device)")
_BASE_BOUND = 2**61
_MOST_UNDECODABLE = 2**18
_MOST_DIGITS = 20
_LOADER = "enumerate(DataLoader)"


def read(path: Path, rank: int | None = None) -> Part:
    """The tables of one trace; Unreadable where it has no usable event."""
    with Stream(path) as stream:
        reader = Reader(stream)
        columns = Columns()
        for batch in reader.batches():
            columns.add(batch)
            if columns.undecodable > max(_MOST_UNDECODABLE, columns.events):
                reader.damage = f"given up after {columns.undecodable} events that are no such thing as Kineto writes"
                break
    if not columns.host.rows and not columns.device.rows:
        raise Unreadable(f"no usable event among {columns.events + columns.undecodable}" + (f": {reader.damage}" if reader.damage else ""))
    return _Trace(path, rank, columns, reader).part()


class _Trace:
    """Turns columns into tables; every time gets the base here and nowhere else."""

    def __init__(self, path: Path, rank: int | None, columns: Columns, reader: Reader) -> None:
        self.path = path
        self.columns = columns
        self.damage = reader.damage
        self.around = reader.around
        info = reader.around.get("distributedInfo")
        self.info: dict[str, Any] = info if isinstance(info, dict) else {}
        told = next((r for r in (rank, _count(self.info.get("rank")), rank_of(path)) if r is not None), None)
        self.rank_given = told is not None
        self.rank = told if told is not None else 0
        base = _integer(reader.around.get("baseTimeNanoseconds"))
        self.base = base if base is not None and base < _BASE_BOUND else 0
        self.host, self.device, self.repeated = repeated.dropped(columns, columns.host.joined(), columns.device.joined())
        self.words = list(columns.names)
        self.texts = rows.texts(self.words)
        window = _WINDOW.fullmatch(path.name)
        self.timeline = timeline(columns.names, self.host, int(window[1]) if window else None)
        self.launch = _launches(self.host, self.device)

    def part(self) -> Part:
        """All tables of the trace."""
        host, device = self.host, self.device
        told = self._collectives()
        kinds = np.concatenate((host.kind, device.kind))
        kinds[[row["row"] for row in told]] = SpanKind.comm
        seen = np.concatenate((host.start, np.where(self.launch >= 0, np.append(host.start, 0)[self.launch], device.start)))
        for row in told:
            seen[row["row"]] = row["enqueue_ns"] if row["enqueue_ns"] is not None else seen[row["row"]]
        step, phase = self.timeline.steps_at(seen), self.timeline.phases_at(seen)
        compute = kinds == SpanKind.compute if len(device) else steps.operators(host, kinds, self.columns.host.args)
        spans = self._spans(kinds, step, phase, told)
        tables = {
            "spans": spans,
            "collectives": self._collective_rows(told, step, phase),
            "steps": steps.summed(self.rank, self.timeline, kinds == SpanKind.comm, compute, step, host, device, self.base),
            "groups": rows.from_rows("groups", self._groups()),
            "clocks": rows.from_rows("clocks", self._clocks()),
            "host": self._waits(step),
        }
        tables["devices"] = rows.from_rows("devices", self._devices())
        first = min(int(side.start.min()) for side in (host, device) if len(side))
        last = max(int(side.end.max()) for side in (host, device) if len(side))
        world_size = _count(self.info.get("world_size"))
        return Part(self.path, tables, self.rank, self.rank_given, world_size, first + self.base, last + self.base, self._notes())

    def _spans(self, kinds: Codes, step: Ints, phase: Ints, told: list[dict[str, Any]]) -> pa.Table:
        """Hosts before devices, as two chunks: what only one side has costs the other nothing."""
        count = len(self.host)
        on_host, on_device = ([row for row in told if (row["row"] < count) == host] for host in (True, False))
        launched = np.where(self.launch >= 0, np.append(self.host.start, 0)[self.launch] + self.base, ABSENT)
        own = {"thread": rows.optional(self.host.where)}
        host = self._side(self.host, kinds[:count], step[:count], phase[:count], on_host, own)
        copies = np.where(self.device.kind == SpanKind.memcpy, 0, -1)
        own = {
            "stream": rows.optional(self.device.where),
            "launch_ns": rows.optional(launched),
            "bytes": rows.optional(self.device.bytes),
            "copy": _of_names(self.device.name, copies, self.words, _copy),
        }
        on_device = [{**row, "row": row["row"] - count} for row in on_device]
        return pa.concat_tables([host, self._side(self.device, kinds[count:], step[count:], phase[count:], on_device, own)])

    def _side(self, side: Spans, kinds: Codes, step: Ints, phase: Ints, told: list[dict[str, Any]], own: dict[str, pa.Array]) -> pa.Table:
        columns = {
            "rank": self.rank,
            "step": rows.optional(step),
            "kind": rows.coded(kinds, [kind.name for kind in SpanKind]),
            "name": rows.coded(side.name, self.texts),
            "start_ns": side.start + self.base,
            "end_ns": side.end + self.base,
            "correlation": rows.optional(side.correlation),
            "copy": rows.no_text(len(side)),
            "phase": rows.coded(phase, PHASES),
            "process_group": _told(told, "process_group", len(side)),
            "operation": _told(told, "operation", len(side)),
            **own,
        }
        return rows.from_columns("spans", len(side), columns)

    def _collectives(self) -> list[dict[str, Any]]:
        """Rows of `collectives` with times since the base; `row` is the span's, hosts before devices."""
        calls = communication.Calls(self.host, self.columns.host.args, self.words)
        found = communication.of_kernels(self.device, self.columns.device.args, self.launch, self.host, calls, self.words)
        for row in found:
            row["row"] += len(self.host)
        found += communication.of_gloo(calls)
        groups = [group for group in self._groups() if len(group["ranks"] or ()) != 1]
        only = groups[0]["process_group"] if len(groups) == 1 else communication.UNKNOWN_GROUP
        sizes = {group["process_group"]: len(group["ranks"]) for group in groups if group["ranks"]}
        any_size = min(sizes.values()) if len(set(sizes.values())) == 1 else None
        stacks = Stacks(self.host, self.words)
        for row in found:
            row["line"] = stacks.line(row["thread"], row["enqueue_ns"]) if row["thread"] is not None else None
            row["process_group"] = row.get("process_group") or only
            row["group_size"] = row.get("group_size") or sizes.get(row["process_group"], any_size)
            if "sent" in row:
                row["bytes"] = operations.volume(row["operation"], row.pop("sent"), None, row["group_size"])
        buckets.number(found, self.host, self.words)
        return found

    def _collective_rows(self, told: list[dict[str, Any]], step: Ints, phase: Ints) -> pa.Table:
        for row in told:
            place = row["row"]
            row |= {"rank": self.rank, "source": "profiler", "step": int(step[place]) if step[place] >= 0 else None}
            row["phase"] = PHASES[phase[place]] if phase[place] >= 0 else None
            for name in ("enqueue_ns", "start_ns", "end_ns"):
                row[name] = row[name] + self.base if row[name] is not None else None
        return rows.from_rows("collectives", told)

    def _groups(self) -> list[dict[str, Any]]:
        args = (*self.columns.device.args.values(), *self.columns.host.args.values())
        groups = communication.groups_told(iter(args))
        configured = self.info.get("pg_config")
        for group in configured if isinstance(configured, list) else []:
            if isinstance(group, dict) and "pg_name" in group:
                name = str(group["pg_name"])
                ranks = communication.ranks_in(group.get("ranks")) or groups.get(name, {}).get("ranks")
                groups[name] = {"process_group": name, "description": _text(group.get("pg_desc")), "ranks": ranks}
                groups[name]["backend"] = _text(group.get("backend_config"))
        return [{"rank": self.rank, "backend": _text(self.info.get("backend")), **group} for group in groups.values()]

    def _clocks(self) -> list[dict[str, Any]]:
        host = self.around.get("host_name")
        return [{"rank": self.rank, "host": host, "time_ns": self.base or None}] if isinstance(host, str) and host else []

    def _devices(self) -> list[dict[str, Any]]:
        """The model of the rank's device, where all devices of its host are of one."""
        told = self.around.get("deviceProperties")
        names = {str(each["name"]) for each in told if isinstance(each, dict) and "name" in each} if isinstance(told, list) else set()
        return [{"rank": self.rank, "time_ns": self.base, "device": "cuda", "name": names.pop()}] if len(names) == 1 else []

    def _waits(self, step: Ints) -> pa.Table:
        """Waits of the host: for the data loader, and for the device."""
        loader = np.array([word.startswith(_LOADER) for word in self.words], bool)[self.host.name]
        chosen = np.flatnonzero(loader | (self.host.kind == SpanKind.sync))
        columns = {
            "rank": self.rank,
            "step": rows.optional(step[chosen]),
            "kind": rows.coded(np.where(loader[chosen], 0, 1), ("input", "host_sync")),
            "start_ns": self.host.start[chosen] + self.base,
            "end_ns": self.host.end[chosen] + self.base,
            "detail": rows.coded(self.host.name[chosen], self.texts),
        }
        return rows.from_columns("host", len(chosen), columns)

    def _notes(self) -> list[dict[str, Any]]:
        columns = self.columns
        counts = (
            (columns.undecodable, "events are no such thing as Kineto writes"),
            (columns.untimed, "events have no usable ts or dur"),
            (columns.negative, "events have a negative duration"),
            (self.repeated, "events are there again"),
        )
        notes = [self._note("damaged", f"{count} {what}: left out", count) for count, what in counts if count]
        if self.damage:
            notes.append(self._note("damaged", f"{self.damage}: the {columns.events} whole events before are used"))
        if not self.rank_given:
            notes.append(self._note("warning", "neither distributedInfo nor the file name tells the rank"))
        if self.timeline.whole:
            notes.append(self._note("warning", "no ProfilerStep annotation: the whole file counts as one step"))
        return notes

    def _note(self, kind: str, text: str, value: float | None = None) -> dict[str, Any]:
        return rows.note(kind, self.path.name, text, self.rank, value)


def _launches(host: Spans, device: Spans) -> Ints:
    """For each device span, the row of the host's call that launched it, by correlation; ABSENT where there is none."""
    calls = np.flatnonzero(host.correlation >= 0)
    if not len(calls):
        return np.full(len(device), ABSENT)
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    known = host.correlation[calls]
    place = np.minimum(np.searchsorted(known, device.correlation), len(known) - 1)
    return np.where((known[place] == device.correlation) & (device.correlation >= 0), calls[place], ABSENT)


def _of_names(names: Codes, chosen: Codes, words: list[str], meaning: Callable[[str], str | None]) -> pa.Array:
    """A text column that follows from a span's name, where `chosen` is not -1."""
    if not len(chosen) or chosen.max() < 0:
        return rows.no_text(len(chosen))
    used = np.unique(names[chosen >= 0]).tolist()
    told = {code: text for code in used if (text := meaning(words[code])) is not None}
    texts = sorted(set(told.values()))
    table = np.full(len(words), -1)
    table[list(told)] = [texts.index(text) for text in told.values()]
    return rows.coded(np.where(chosen >= 0, table[names], -1), texts)


def _copy(name: str) -> str | None:
    """DtoH pageable for Memcpy DtoH (Device -> Pageable); HtoD for CopyHostToDevice."""
    match = _COPY.search(name)
    if match is None:
        return None
    if match["way"] is None:
        return f"{match['rfrom'][0]}to{match['rto'][0]}"
    kinds = {kind.lower() for kind in (match["from"], match["to"]) if kind} & {"pageable", "pinned"}
    return " ".join((match["way"], *sorted(kinds)))


def _told(told: list[dict[str, Any]], name: str, count: int) -> pa.DictionaryArray:
    if not told:
        return rows.no_text(count)
    words = sorted({row[name] for row in told})
    codes = np.full(count, -1, np.int32)
    codes[[row["row"] for row in told]] = [words.index(row[name]) for row in told]
    return rows.coded(codes, words)


def _integer(value: object) -> int | None:
    value = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _MOST_DIGITS else value
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _count(value: object) -> int | None:
    """A rank or a number of ranks; none where it is more than there can be."""
    number = _integer(value)
    return number if number is not None and number <= MOST_RANKS else None


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None
