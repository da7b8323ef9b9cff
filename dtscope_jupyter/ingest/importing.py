# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The door: any mixture of files in, one run's tables out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.ingest import files, merge, parallel, rows
from dtscope_jupyter.ingest.files import Kind, Unreadable
from dtscope_jupyter.ingest.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from dtscope_jupyter.ingest.files import Source
    from dtscope_jupyter.ingest.topology import Graph

_REASONS, _LINES = 3, 20


@dataclass(frozen=True, slots=True)
class Imported:
    """What was read: all tables of schema.py, NCCL's view of the machine where a file tells it, and the files used."""

    tables: dict[str, pa.Table]
    topology: Graph | None
    files: list[Path]
    world_size: int | None


@dataclass(slots=True)
class _Gathered:
    sources: list[Source] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    used: list[Path] = field(default_factory=list)

    def keep(self, source: Source, result: Part | Graph | Unreadable) -> None:
        """Puts away what a file gave."""
        if isinstance(result, Unreadable):
            self.notes.append(rows.note("unreadable", source.path.name, str(result)))
            return
        self.used.append(source.path)
        if isinstance(result, Part):
            self.parts.append(result)
        else:
            self.graphs.append(result)


def read(paths: Sequence[Path], *, rank: int | None = None) -> Imported:
    """Reads traces, dumps, NCCL's files and folders of them; `rank` overrides what the files say of their rank.

    What can't be used is named in the table `notes` (kind unreadable, name of the file, reason), with rank -1
    where it is of no rank. DtscopeError where a path doesn't exist or nothing at all could be read.
    """
    gathered = _Gathered()
    for source in _identified(paths, gathered):
        gathered.keep(source, _graph(source))
    results = dict(parallel.read_all(gathered.sources, rank))
    for source in gathered.sources:
        gathered.keep(source, results[source])
    if not gathered.used:
        raise _nothing(paths, gathered.notes)
    parts, notes = merge.settle(gathered.parts)
    notes += gathered.notes + [note for part in parts for note in part.notes]
    tables = merge.combine([*(part.tables for part in parts), {"notes": rows.from_rows("notes", notes)}])
    world_size = max((part.world_size for part in parts if part.world_size), default=None)
    assert tables.keys() == schema.TABLES.keys()
    return Imported(tables, _topology(gathered.graphs), gathered.used, world_size)


def _identified(paths: Sequence[Path], gathered: _Gathered) -> Iterator[Source]:
    """The files of NCCL; traces and dumps go to `gathered.sources`, what is neither to its notes."""
    for path in files.find(paths):
        try:
            source = files.identify(path)
        except Unreadable as error:
            gathered.notes.append(rows.note("unreadable", path.name, str(error)))
            continue
        if source.kind in parallel.READERS:
            gathered.sources.append(source)
        else:
            yield source


def _graph(source: Source) -> Graph | Unreadable:
    from dtscope_jupyter.ingest import nccl_log, topology  # networkx takes 0.1 s

    readers = {Kind.TOPOLOGY: topology.read_topology, Kind.GRAPH: topology.read_graph, Kind.LOG: nccl_log.read}
    try:
        return readers[source.kind](source.path)
    except Unreadable as error:
        return error


def _topology(graphs: list[Graph]) -> Graph | None:
    if not graphs:
        return None
    from dtscope_jupyter.ingest import topology

    return topology.merged(graphs)


def _nothing(paths: Sequence[Path], notes: list[dict[str, Any]]) -> DtscopeError:
    """The first reasons in its line; of more files the first few, a line each, as the exception's notes."""
    where = ", ".join(repr(str(path)) for path in paths)
    told = [f"{note['name']}: {note['text']}" for note in notes]
    more = f"; and {len(told) - _REASONS} more" if len(told) > _REASONS else ""
    reasons = "; ".join(told[:_REASONS]) or "no file there"
    error = DtscopeError(f"nothing readable in {where} ({reasons}{more}); give Kineto traces, Flight Recorder dumps or NCCL's files")
    if more:
        for line in (*told[:_LINES], *([f"and {len(told) - _LINES} more"] if len(told) > _LINES else ())):
            error.add_note(line)
    return error
