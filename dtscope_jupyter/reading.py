# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Reads, and goes on reading, the tables of one attempt of a run directory."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import rundir, schema, vanished
from dtscope_jupyter.errors import PEER_LOST, DtscopeError
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from dtscope_jupyter.rundir import Attempt

_TAIL_BYTES = 4096
_LOOSE_BLOCKS, _LOOSE_ROWS = 256, 2**16
"""A slow run writes a row a block, and a decoded block takes ten times its bytes: so many are made one piece."""
_FAILED = re.compile(r"rank (\d{1,9}): (.*)", re.DOTALL)
_FILE = re.compile(r"trace-\d+\.json(\.gz)?|flight_recorder-[^/]*\.(pkl|json)|stacks-[^/]*\.txt")


class AttemptReader:
    """Follows every table of every rank; `poll` takes in what is new, `tables` gives all so far."""

    def __init__(self, attempt: Attempt) -> None:
        """Nothing is read yet."""
        self.attempt = attempt
        self._readers: dict[tuple[int, str], BlockReader] = {}
        self._new: dict[str, list[pa.RecordBatch]] = {name: [] for name in schema.TABLES}
        self._loose = dict.fromkeys(schema.TABLES, 0)
        self._parts: dict[str, list[pa.Table]] = {name: [] for name in schema.TABLES}
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
        found = {name: self._table(name) for name in schema.TABLES}
        found["collectives"] = latest_rows(found["collectives"])
        gone = self._gone(found["notes"])
        found["notes"] = pa.concat_tables([self._table("notes"), encoded(self._damage(gone))]).unify_dictionaries()
        if not self._files:
            return found
        from dtscope_jupyter import ingest

        return ingest.combine([found, *(_supplement(found, tables) for tables in self._files.values())])

    def _poll(self, rank: int, name: str) -> int:
        rows = 0
        try:
            for batch in self._reader(rank, name).batches():
                self._new[name].append(batch)
                rows += batch.num_rows
                self._loose[name] += batch.num_rows
                if len(self._new[name]) >= _LOOSE_BLOCKS or self._loose[name] >= _LOOSE_ROWS:
                    self._gather(name)
        except OSError as error:
            self._unreadable[rank, name] = error.strerror or str(error)
        return rows

    def _gather(self, name: str) -> None:
        """Makes one part of the new blocks, and merges parts with ones not much larger, so that each row is copied a few times only."""
        parts = self._parts[name]
        if self._new[name]:
            parts.append(encoded(pa.Table.from_batches(self._new[name], schema.TABLES[name].arrow)))
            self._new[name], self._loose[name] = [], 0
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last = parts.pop()
            parts[-1] = pa.concat_tables([parts[-1], last]).unify_dictionaries().combine_chunks()

    def _table(self, name: str) -> pa.Table:
        """All rows of a table."""
        self._gather(name)
        parts = self._parts[name]
        return pa.concat_tables(parts).unify_dictionaries() if parts else encoded(schema.TABLES[name].empty())

    def _poll_files(self, rank: int) -> int:
        new = [path for path in finished_files(self.attempt.rank_path(rank)) if path not in self._files]
        if not new:
            return 0
        from dtscope_jupyter import ingest
        from dtscope_jupyter.ingest import stack_files

        for path in new:
            try:
                self._files[path] = stack_files.read(path, rank) if path.suffix == ".txt" else ingest.read([path], rank=rank).tables
            except DtscopeError as error:
                note = {"rank": rank, "kind": "unreadable", "name": path.name, "text": str(error)}
                self._files[path] = {"notes": pa.Table.from_pylist([note], schema.NOTES.arrow)}
        return len(new)

    def _reader(self, rank: int, name: str) -> BlockReader:
        key = (rank, name)
        if key not in self._readers:
            self._readers[key] = BlockReader(self.attempt.rank_path(rank), name)
        return self._readers[key]

    def _gone(self, notes: pa.Table) -> list[dict[str, object]]:
        """Ranks that are gone without a word; what one wrote at its end, after the files were read, is read first."""
        gone = vanished.notes(self.attempt, exited(notes))
        if not sum([self._poll(int(row["rank"]), "notes") for row in gone]):
            return gone
        said = exited(self._table("notes"))
        return [row for row in gone if row["rank"] not in said]

    def _damage(self, gone: list[dict[str, object]]) -> pa.Table:
        rows = [_note(rank, name, 1, f"{name} can't be read: {why}") for (rank, name), why in self._unreadable.items()]
        for (rank, name), reader in self._readers.items():
            if reader.damaged:
                rows.append(_note(rank, name, reader.damaged, f"{reader.damaged} damaged blocks of {name} were skipped"))
            if reader.newer:
                text = f"{reader.newer} blocks of {name} are of a newer version and were skipped; update dtscope-jupyter"
                rows.append(_note(rank, name, reader.newer, text))
        rows += [*_exits(self.attempt), *gone]
        return pa.Table.from_pylist(rows, schema.NOTES.arrow)


def _note(rank: int, name: str, value: float, text: str) -> dict[str, object]:
    return {"rank": rank, "kind": "damaged", "name": name, "value": float(value), "text": text}


def exited(notes: pa.Table) -> set[int]:
    """Ranks of which a note tells how they ended."""
    return set(notes.filter(pc.equal(notes.column("kind").cast(pa.utf8()), "exit")).column("rank").to_pylist())


def _exits(attempt: Attempt) -> list[dict[str, object]]:
    """Ranks that ended by themselves in a run that went wrong, as their launcher wrote it into run.json, with their last word."""
    told, failed = attempt.meta.get("exits"), _FAILED.fullmatch(str(attempt.meta.get("message", "")))
    reasons = {int(failed[1]): failed[2]} if failed and any(mark in failed[2] for mark in PEER_LOST) else {}
    return [
        {"rank": rank, "kind": "exit", "time_ns": time_ns, "value": float(code),
         "text": f"ended with exit code {code}{_last_word(attempt.rank_path(rank) / 'log.txt', reasons.get(rank))}"}
        for item in (told if isinstance(told, list) else [])
        if isinstance(item, list) and len(item) == len(("rank", "code", "time_ns")) and all(isinstance(part, int) for part in item)
        for rank, code, time_ns in [item]
    ]  # fmt: skip


def _last_word(log: Path, reason: str | None) -> str:
    """How a peer was lost, else the last line of a rank's log, cut to 300 characters, behind a colon."""
    if reason is not None:
        return f": {reason[:300]}"
    try:
        with rundir.open_regular(log) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1].strip()[:300]}" if lines else ""


def finished_files(folder: Path) -> list[Path]:
    """Profiler windows, Flight Recorder dumps and stacks of a rank, oldest first."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if _FILE.fullmatch(entry.name))
    except OSError:
        return []
    return [entry for entry in entries if entry.is_file() and not entry.is_symlink() and entry.stat().st_size]


def _supplement(recorded: Mapping[str, pa.Table], found: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """What a window or dump adds to a recording: no clock, no step and no wait that the rank has recorded itself."""
    added = {name: found[name] for name in ("spans", "collectives", "groups", "notes") if name in found}
    if "host" in found:
        unseen = pc.is_in(found["host"].column("kind").cast(pa.utf8()), pa.array(["host_sync", "stack"]))
        added["host"] = found["host"].filter(unseen)
    if "steps" in found and not len(recorded["steps"]):
        added["steps"] = found["steps"]
    return added


def latest_rows(collectives: pa.Table) -> pa.Table:
    """Without rows of pending collectives that a later row of the same (rank, process_group, seq) has overtaken.

    A collective in flight is written once, and again when it is done. Sends and receives have numbers of their own.
    Finished rows all stay: a process group that is made anew counts from the start again.
    """
    pending = _equal(collectives, "state", ["scheduled", "started"]) & ~_null(collectives, "seq")
    if not pending.any():
        return collectives
    seq, rank = (np.asarray(pc.fill_null(collectives.column(name), -1)) for name in ("seq", "rank"))
    rows = np.flatnonzero(np.isin(seq, seq[pending]) & np.isin(rank, rank[pending]) & ~_null(collectives, "seq"))
    group = pc.dictionary_encode(collectives.column("process_group").take(pa.array(rows)).cast(pa.utf8()))
    keys = (rank[rows], seq[rows], _equal(collectives, "operation", ["send", "recv"])[rows], _indices(group))
    order = np.lexsort(keys)
    overtaken = np.zeros(len(order), bool)
    overtaken[:-1] = ~np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    keep = np.ones(len(collectives), bool)
    keep[rows[order[overtaken & pending[rows[order]]]]] = False
    return collectives.filter(pa.array(keep))


def _equal(table: pa.Table, name: str, values: list[str]) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_in(table.column(name).cast(pa.utf8()), pa.array(values)))


def _null(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_null(table.column(name)))


def _indices(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    chunks = column.unify_dictionaries().chunks
    return np.concatenate([np.asarray(chunk.indices, dtype=np.int64) for chunk in chunks]) if chunks else np.zeros(0, np.int64)


def encoded(table: pa.Table) -> pa.Table:
    """Text columns dictionary encoded: one copy of each text, and numbers to compare."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = pc.dictionary_encode(table.column(place))
            table = table.set_column(place, pa.field(field.name, column.type, field.nullable, field.metadata), column)
    return table.combine_chunks()
