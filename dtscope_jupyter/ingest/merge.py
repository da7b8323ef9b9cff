# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Many files' tables into one run's: ranks settled, windows put together, nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import arrays, schema
from dtscope_jupyter.ingest import jobs, rows
from dtscope_jupyter.ingest.duplicates import without_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dtscope_jupyter.ingest.part import Part
    from dtscope_jupyter.ingest.rows import Tables


def combine(tables: Sequence[Mapping[str, pa.Table]]) -> Tables:
    """One mapping of all tables (names absent count as empty), each collective and process group of a rank once.

    Where several sources saw a collective the most exact stands for it (profiler, event, host, flight_recorder).
    """
    joined = {name: _joined(name, [given[name] for given in tables if name in given]) for name in schema.TABLES}
    joined["collectives"] = without_duplicates(joined["collectives"])
    joined["groups"] = _groups(joined["groups"])
    return joined


def settle(parts: Iterable[Part]) -> tuple[list[Part], list[dict[str, Any]]]:
    """The parts to use, with ranks for those whose files tell none, and notes on the parts left out.

    Two traces of one rank are two windows if they don't overlap in time, whose steps then count on where they
    collide; of overlapping ones the first stands. Dumps of one rank are all used (`combine` drops what they share).
    Of traces of several jobs those of the newest are used, and a note names the others (`jobs.newest`).
    """
    parts = list(parts)
    _number(parts)
    used: list[Part] = []
    parts, notes = jobs.newest(parts)
    last: dict[int, Part] = {}
    for part in sorted(parts, key=lambda part: (part.rank, part.first_ns or 0, part.path)):
        before = last.get(part.rank)
        if "spans" in part.tables:
            if before is not None and _overlap(before, part):
                text = f"of rank {part.rank} and of the same time as {before.path.name}: left out"
                notes.append(rows.note("unreadable", part.path.name, text, part.rank))
                continue
            if before is not None:
                _count_on(before, part)
            last[part.rank] = part
        used.append(part)
    return used, notes


def _number(parts: list[Part]) -> None:
    """Gives the lowest free ranks to parts without one; dumps and traces are numbered apart."""
    for of_traces in (True, False):
        some = [part for part in parts if ("spans" in part.tables) == of_traces]
        taken = {part.rank for part in some if part.rank_given}
        for part in some:
            if not part.rank_given:
                rank = next(rank for rank in range(len(taken) + 1) if rank not in taken)
                taken.add(rank)
                _set_rank(part, rank)


def _set_rank(part: Part, rank: int) -> None:
    part.notes = [note | {"rank": rank} for note in part.notes]
    part.notes = [n | {"text": f"{n['text']}: taken as rank {rank}"} if "tells" in n["text"] else n for n in part.notes]
    part.rank = rank
    for name, table in part.tables.items():
        place = table.column_names.index("rank")
        part.tables[name] = table.set_column(place, table.schema.field("rank"), arrays.of_numpy(np.full(len(table), rank, np.int32)))


def _overlap(before: Part, part: Part) -> bool:
    assert before.last_ns is not None, "a trace covers some time"
    assert part.first_ns is not None, "a trace covers some time"
    return part.first_ns < before.last_ns


def _count_on(before: Part, part: Part) -> None:
    last = pc.max(before.tables["steps"]["step"]).as_py()
    first = pc.min(part.tables["steps"]["step"]).as_py()
    if last is None or first is None or first > last:
        return
    shift = last + 1 - first
    for name, table in part.tables.items():
        if "step" in table.column_names:
            place = table.column_names.index("step")
            part.tables[name] = table.set_column(place, table.schema.field("step"), pc.add(table["step"], shift))
    part.notes.append(rows.note("warning", part.path.name, f"steps begin again at {first}: counted on from {first + shift}", part.rank))


def _joined(name: str, tables: list[pa.Table]) -> pa.Table:
    tables = [table for table in tables if len(table)]
    if not tables:
        return schema.TABLES[name].empty()
    coded = {n for table in tables for n in table.column_names if pa.types.is_dictionary(table.schema.field(n).type)}
    return pa.concat_tables([_coded(table, coded) for table in tables])


def _coded(table: pa.Table, names: set[str]) -> pa.Table:
    """With the columns `names` dictionary encoded; metadata dropped, as it may differ by format version."""
    columns = {name: table[name] for name in table.column_names}
    for name in names:
        if not pa.types.is_dictionary(columns[name].type):
            columns[name] = columns[name].dictionary_encode()
    return pa.table(columns)


def _groups(table: pa.Table) -> pa.Table:
    """One row a rank and process group: the first value that is known, and the furthest progress."""
    told = table.to_pylist()
    if len({(row["rank"], row["process_group"]) for row in told}) == len(told):
        return table
    merged: dict[tuple[int, str], dict[str, Any]] = {}
    for row in told:
        known = merged.setdefault((row["rank"], row["process_group"]), row)
        for name, value in row.items():
            if name.startswith("last_") and value is not None:
                known[name] = max(value, known[name] if known[name] is not None else value)
            elif known[name] is None:
                known[name] = value
    return rows.from_rows("groups", list(merged.values()))
