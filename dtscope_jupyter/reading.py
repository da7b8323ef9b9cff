# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Reads, and goes on reading, the tables of one attempt of a run directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dtscope_jupyter.rundir import Attempt

_FILE = re.compile(r"trace-\d+\.json(\.gz)?|flight_recorder-[^/]*\.(pkl|json)")


class AttemptReader:
    """Follows every table of every rank; `poll` takes in what is new, `tables` gives all so far."""

    def __init__(self, attempt: Attempt) -> None:
        """Nothing is read yet."""
        self.attempt = attempt
        self._readers: dict[tuple[int, str], BlockReader] = {}
        self._batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in schema.TABLES}
        self._unreadable: dict[tuple[int, str], str] = {}
        self._files: dict[Path, Mapping[str, pa.Table]] = {}

    def poll(self) -> int:
        """Reads what is new of all ranks, also of ranks that came since; returns the new rows and files."""
        count = 0
        for rank in self.attempt.ranks():
            for name in schema.TABLES:
                count += self._poll(rank, name)
            count += self._poll_files(rank)
        return count

    def tables(self) -> dict[str, pa.Table]:
        """All rows so far; of a collective written twice, once it was pending, the last row. Damage stands in `notes`.

        Profiler windows and Flight Recorder dumps in the rank folders are part of it; what the rank itself recorded of a step stands.
        """
        found = {name: pa.Table.from_batches(batches, schema.TABLES[name].arrow) for name, batches in self._batches.items()}
        found["collectives"] = latest_rows(found["collectives"])
        found["notes"] = pa.concat_tables([found["notes"], self._damage()])
        found = {name: encoded(table) for name, table in found.items()}
        if not self._files:
            return found
        from dtscope_jupyter import ingest

        return ingest.combine([found, *(_supplement(found, tables) for tables in self._files.values())])

    def _poll(self, rank: int, name: str) -> int:
        rows = 0
        try:
            for batch in self._reader(rank, name).batches():
                self._batches[name].append(batch)
                rows += batch.num_rows
        except OSError as error:
            self._unreadable[rank, name] = error.strerror or str(error)
        return rows

    def _poll_files(self, rank: int) -> int:
        new = [path for path in _finished_files(self.attempt.rank_path(rank)) if path not in self._files]
        if not new:
            return 0
        from dtscope_jupyter import ingest

        for path in new:
            try:
                self._files[path] = ingest.read([path], rank=rank).tables
            except DtscopeError as error:
                note = {"rank": rank, "kind": "unreadable", "name": path.name, "text": str(error)}
                self._files[path] = {"notes": pa.Table.from_pylist([note], schema.NOTES.arrow)}
        return len(new)

    def _reader(self, rank: int, name: str) -> BlockReader:
        key = (rank, name)
        if key not in self._readers:
            self._readers[key] = BlockReader(self.attempt.rank_path(rank), name)
        return self._readers[key]

    def _damage(self) -> pa.Table:
        rows = [_note(rank, name, 1, f"{name} can't be read: {why}") for (rank, name), why in self._unreadable.items()]
        for (rank, name), reader in self._readers.items():
            if reader.damaged:
                rows.append(_note(rank, name, reader.damaged, f"{reader.damaged} damaged blocks of {name} were skipped"))
            if reader.newer:
                text = f"{reader.newer} blocks of {name} are of a newer version and were skipped; update dtscope-jupyter"
                rows.append(_note(rank, name, reader.newer, text))
        return pa.Table.from_pylist(rows, schema.NOTES.arrow)


def _note(rank: int, name: str, value: float, text: str) -> dict[str, object]:
    return {"rank": rank, "kind": "damaged", "name": name, "value": float(value), "text": text}


def _finished_files(folder: Path) -> list[Path]:
    """Profiler windows and Flight Recorder dumps of a rank, oldest first."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if _FILE.fullmatch(entry.name))
    except OSError:
        return []
    return [entry for entry in entries if entry.is_file() and not entry.is_symlink()]


def _supplement(recorded: Mapping[str, pa.Table], found: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """What a window or dump adds to a recording: no clock, no step and no wait that the rank has recorded itself."""
    added = {name: found[name] for name in ("spans", "collectives", "groups", "notes") if name in found}
    if "host" in found:
        syncs = pc.equal(found["host"].column("kind").cast(pa.utf8()), "host_sync")
        added["host"] = found["host"].filter(syncs)
    if "steps" in found and not len(recorded["steps"]):
        added["steps"] = found["steps"]
    return added


def latest_rows(collectives: pa.Table) -> pa.Table:
    """The last row of each (rank, process_group, seq): a pending collective is written again when it is done.

    Sends and receives have numbers of their own.
    """
    if not len(collectives):
        return collectives
    seq = collectives.column("seq")
    group = pc.dictionary_encode(collectives.column("process_group")).combine_chunks()
    group = group.chunk(0) if isinstance(group, pa.ChunkedArray) else group
    alone = np.asarray(pc.is_null(seq))
    message = pc.is_in(collectives.column("operation"), pa.array(["send", "recv"]))
    keys = (
        np.asarray(message).astype(np.int64),
        np.where(alone, -1 - np.arange(len(alone)), np.asarray(pc.fill_null(seq, 0))),
        np.asarray(group.indices),
        np.asarray(collectives.column("rank")),
    )
    order = np.lexsort(keys)
    last = np.ones(len(order), bool)
    last[:-1] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    if last.all():
        return collectives
    return collectives.take(pa.array(np.sort(order[last])))


def encoded(table: pa.Table) -> pa.Table:
    """Text columns dictionary encoded: one copy of each text, and numbers to compare."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = pc.dictionary_encode(table.column(place))
            table = table.set_column(place, pa.field(field.name, column.type, field.nullable, field.metadata), column)
    return table.combine_chunks()
