# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One Perfetto trace of all ranks, with arrows between the ranks of a collective.

Every rank is a process; under it lie its steps, what its host waited for, a track a process group with its collectives, a track a device
stream and one a host thread. Times of several hosts are on one clock as in `analysis.clocks`. Open it at ui.perfetto.dev.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis.clocks import offsets
from dtscope_jupyter.analysis.columns import NONE, Ints, codes, ints, texts
from dtscope_jupyter.analysis.waits import timed
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    import pyarrow as pa

_SEQUENCE = 1


@dataclass(slots=True)
class _Slices:
    """Slices of one track, as columns; `details` has whole numbers to show with each, `flow` an arrow's number or 0."""

    start: Ints
    end: Ints
    name: npt.NDArray[np.object_]
    details: dict[str, Ints]
    flow: Ints
    last: npt.NDArray[np.bool_]


def write(tables: Mapping[str, pa.Table], file: IO[bytes]) -> None:
    """Writes the trace into a binary file.

    Raises:
        DtscopeError: The package `perfetto` is not installed.
    """
    writer = _Writer(file)
    shift = offsets(tables, None)
    arrows, ends = _arrows(tables)
    ranks = np.unique(np.concatenate([ints(tables[name], "rank") for name in ("steps", "collectives", "spans", "host")]))
    for place, rank in enumerate(ranks.tolist()):
        process = writer.process(rank, place)
        correction = int(shift.of(np.array([rank]))[0])
        for title, slices in _tracks(tables, rank, arrows, ends):
            slices.start, slices.end = slices.start + correction, slices.end + correction
            writer.track(process, title, slices)


def _arrows(tables: Mapping[str, pa.Table]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Of each row of `collectives`: the number of its collective, from 1, 0 where none; and whether it is the last to begin."""
    found = timed(tables)
    arrows = np.zeros(len(tables["collectives"]), np.int64)
    arrows[found.index] = found.collective + 1
    ends = np.zeros(len(arrows), bool)
    order = np.lexsort((ints(found.rows, "rank"), found.start, found.collective))
    final = np.ones(len(order), bool)
    final[:-1] = found.collective[order][1:] != found.collective[order][:-1]
    ends[found.index[order[final]]] = True
    return arrows, ends


def _tracks(
    tables: Mapping[str, pa.Table], rank: int, arrows: Ints, ends: npt.NDArray[np.bool_],
) -> Iterator[tuple[str, _Slices]]:
    steps, rows = _mine(tables["steps"], rank)
    yield "steps", _slices(steps, np.array([f"step {n}" for n in ints(steps, "step").tolist()], dtype=object), ())
    host, rows = _mine(tables["host"], rank)
    yield "host", _slices(host, texts(*codes(host, "kind")), ("bytes",))
    collectives, rows = _mine(tables["collectives"], rank)
    own_arrows, own_ends = arrows[rows], ends[rows]
    group, names = codes(collectives, "process_group")
    for code, name in enumerate(names):
        mine = np.flatnonzero(group == code)
        if len(mine):
            part = collectives.take(mine)
            slices = _slices(part, texts(*codes(part, "operation")), ("seq", "bytes", "step", "bucket"))
            slices.flow, slices.last = own_arrows[mine], own_ends[mine]
            yield f"process group {name}", slices
    spans, rows = _mine(tables["spans"], rank)
    for column, title in (("stream", "stream"), ("thread", "thread")):
        where = ints(spans, column)
        for one in np.unique(where[where != NONE]).tolist():
            part = spans.take(np.flatnonzero(where == one))
            yield f"{title} {one}", _slices(part, texts(*codes(part, "name")), ())


def _mine(table: pa.Table, rank: int) -> tuple[pa.Table, Ints]:
    """The rank's rows that have both times, and their places."""
    keep = (ints(table, "rank") == rank) & (ints(table, "start_ns") != NONE) & (ints(table, "end_ns") != NONE)
    rows = np.flatnonzero(keep & (ints(table, "end_ns") >= ints(table, "start_ns")))
    return table.take(rows), rows


def _slices(table: pa.Table, name: npt.NDArray[np.object_], details: tuple[str, ...]) -> _Slices:
    nothing = np.zeros(len(table), np.int64)
    columns = {column: ints(table, column) for column in details}
    return _Slices(ints(table, "start_ns"), ints(table, "end_ns"), name, columns, nothing, nothing.astype(bool))


def lanes(start: Ints, end: Ints) -> list[list[int]]:
    """Rows in as few lanes as a greedy choice needs, in each of which intervals nest or follow each other, by start."""
    found: list[list[int]] = []
    stacks: list[list[int]] = []
    begins, ends = start.tolist(), end.tolist()
    for row in np.lexsort((-end, start)).tolist():
        place = next((place for place, stack in enumerate(stacks) if _fits(stack, begins[row], ends[row])), len(stacks))
        if place == len(stacks):
            found.append([])
            stacks.append([])
        found[place].append(row)
        stacks[place].append(ends[row])
    return found


def _fits(stack: list[int], begin: int, end: int) -> bool:
    """Whether an interval lies within the innermost open one, once those that have ended are off the stack."""
    while stack and stack[-1] <= begin:
        stack.pop()
    return not stack or end <= stack[-1]


class _Writer:
    """Packets of one trusted sequence, names interned."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent
            from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
        except ImportError as error:
            raise DtscopeError("the perfetto export needs the package perfetto; pip install 'dtscope-jupyter[perfetto]'") from error
        self._builder = StreamingTraceProtoBuilder(file)
        self._begin, self._end = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
        self._names: dict[str, int] = {}
        self._tracks = 0
        first = self._packet()
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._needed = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self._builder.write_packet(first)

    def process(self, rank: int, place: int) -> int:
        """Describes a rank and returns its track."""
        packet, uuid = self._described(f"rank {rank}")
        packet.track_descriptor.process.pid = rank + 1
        packet.track_descriptor.process.process_name = f"rank {rank}"
        packet.track_descriptor.sibling_order_rank = place
        packet.track_descriptor.child_ordering = 3
        self._builder.write_packet(packet)
        return uuid

    def track(self, parent: int, title: str, slices: _Slices) -> None:
        """Writes slices under a process, crossing ones on tracks of their own beside each other."""
        for rows in lanes(slices.start, slices.end):
            packet, uuid = self._described(title)
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.sibling_order_rank = uuid
            self._builder.write_packet(packet)
            self._lane(uuid, slices, rows)

    def _lane(self, uuid: int, slices: _Slices, rows: list[int]) -> None:
        open_ends: list[int] = []
        for row in rows:
            begin, end = int(slices.start[row]), int(slices.end[row])
            while open_ends and open_ends[-1] <= begin:
                self._close(uuid, open_ends.pop())
            self._open(uuid, begin, slices, row)
            open_ends.append(end)
        while open_ends:
            self._close(uuid, open_ends.pop())

    def _open(self, uuid: int, time: int, slices: _Slices, row: int) -> None:
        packet = self._event(uuid, time, self._begin)
        name = slices.name[row] or "?"
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) + 1
            packet.interned_data.event_names.add(iid=number, name=name)
        event = packet.track_event
        event.name_iid = number
        if slices.flow[row]:
            (event.terminating_flow_ids if slices.last[row] else event.flow_ids).append(int(slices.flow[row]))
        for detail, column in slices.details.items():
            if column[row] != NONE:
                event.debug_annotations.add(name=detail, int_value=int(column[row]))
        self._builder.write_packet(packet)

    def _close(self, uuid: int, time: int) -> None:
        self._builder.write_packet(self._event(uuid, time, self._end))

    def _event(self, uuid: int, time: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = time
        packet.sequence_flags = self._needed
        packet.track_event.type = kind
        packet.track_event.track_uuid = uuid
        return packet

    def _described(self, name: str) -> tuple[Any, int]:
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        packet.track_descriptor.name = name
        return packet, self._tracks

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet
