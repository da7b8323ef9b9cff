# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What several sources saw counts once, and the most exact stands for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter import ingest, schema

MS = 1_000_000
T = 1_795_993_000_000 * MS


def _row(source: str, at: int, **changes: Any) -> dict[str, Any]:
    plain = {"rank": 0, "process_group": "0", "operation": "all_reduce", "enqueue_ns": T + at, "source": source}
    timed = {"start_ns": T + at + 100, "end_ns": T + at + 900} if source in ("profiler", "event", "host") else {}
    return plain | timed | changes


def _combined(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    tables = [{"collectives": pa.Table.from_pylist([row], schema.TABLES["collectives"].arrow)} for row in rows]
    merged: list[dict[str, Any]] = ingest.combine(tables)["collectives"].to_pylist()
    return merged


@pytest.mark.parametrize(
    ("exact", "loose"),
    [
        ("profiler", "event"),
        ("profiler", "host"),
        ("profiler", "flight_recorder"),
        ("event", "host"),
        ("event", "flight_recorder"),
        ("host", "flight_recorder"),
    ],
)
@pytest.mark.parametrize("by", ["seq", "time"])
def test_the_more_exact_stands_and_its_gaps_are_filled(exact: str, loose: str, by: str) -> None:
    numbered = {"seq": 5} if by == "seq" else {}
    far = 10**12 if by == "seq" else MS
    rows = [_row(loose, far, seq=5, shape="[4]", line="train.py:3", state="scheduled"), _row(exact, 0, state="completed", **numbered)]
    for given_rows in (rows, rows[::-1]):
        (row,) = _combined(*given_rows)
        assert (row["source"], row["state"], row["enqueue_ns"], row["start_ns"]) == (exact, "completed", T, T + 100)
        assert (row["seq"], row["shape"], row["line"]) == (5, "[4]", "train.py:3")


def test_three_sources_are_one_row() -> None:
    rows = [_row("flight_recorder", 40, seq=1, line="a.py:1"), _row("event", 20, seq=1, bucket=2), _row("profiler", 0)]
    (row,) = _combined(*rows)
    assert (row["source"], row["seq"], row["bucket"], row["line"]) == ("profiler", 1, 2, "a.py:1")


@pytest.mark.parametrize(
    "changes",
    [{"rank": 1}, {"process_group": "1"}, {"seq": 6}, {"operation": "send"}],
)
def test_other_ranks_groups_numbers_and_kinds_stay_apart(changes: dict[str, Any]) -> None:
    assert len(_combined(_row("event", 0, seq=5), _row("flight_recorder", 10**12, seq=5) | changes)) == 2


def test_what_is_far_apart_in_time_stays_apart() -> None:
    assert len(_combined(_row("profiler", 0), _row("flight_recorder", 60 * MS, seq=1))) == 2


def test_another_operation_at_the_same_time_stays_apart() -> None:
    assert len(_combined(_row("profiler", 0), _row("flight_recorder", 10, seq=1, operation="broadcast"))) == 2
    assert len(_combined(_row("profiler", 0, operation="send_recv"), _row("flight_recorder", 10, seq=1, operation="all_to_all"))) == 1


def test_an_unknown_group_is_filled_by_the_known_one() -> None:
    (row,) = _combined(_row("profiler", 0, process_group="unknown"), _row("flight_recorder", 10, seq=3, process_group="7"))
    assert (row["process_group"], row["seq"]) == ("7", 3)


def test_rows_of_one_source_are_never_merged_by_number_alone() -> None:
    assert len(_combined(_row("event", 0, seq=5), _row("event", 900, seq=5))) == 2
    assert len(_combined(_row("flight_recorder", 0, seq=5), _row("flight_recorder", 900, seq=5))) == 2


def test_coalesced_operations_of_one_number_pair_one_by_one() -> None:
    rows = [_row("flight_recorder", n, seq=5, bytes=n + 1) for n in range(3)] + [_row("profiler", n, seq=5) for n in range(3)]
    assert sorted(row["bytes"] for row in _combined(*rows)) == [1, 2, 3]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_window_within_a_recording_counts_nothing_twice(data: st.DataObject) -> None:
    """Collectives of one group enqueue one after the other; the profiler saw a stretch, its clock some us off."""
    gaps = data.draw(st.lists(st.integers(100_000, 5 * MS), min_size=1, max_size=30))
    times = [sum(gaps[:n]) for n in range(len(gaps))]
    first = data.draw(st.integers(0, len(times) - 1))
    last = data.draw(st.integers(first, len(times) - 1))
    skew = data.draw(st.integers(-40_000, 40_000))
    rows = [_row("flight_recorder", at, seq=n) for n, at in enumerate(times)]
    rows += [_row("profiler", at + skew) for at in times[first : last + 1]]
    merged = sorted(_combined(*data.draw(st.permutations(rows))), key=lambda row: row["seq"])
    assert [row["seq"] for row in merged] == list(range(len(times)))
    assert [row["source"] for row in merged] == ["profiler" if first <= n <= last else "flight_recorder" for n in range(len(times))]


def test_groups_of_a_rank_are_one_row_with_the_furthest_progress() -> None:
    told = [{"rank": 0, "process_group": "0", "ranks": [0, 1]}, {"rank": 0, "process_group": "0", "backend": "nccl", "last_enqueued": 7}]
    told += [{"rank": 0, "process_group": "0", "last_enqueued": 5, "last_completed": 5}, {"rank": 1, "process_group": "0"}]
    groups = ingest.combine([{"groups": pa.Table.from_pylist([row], schema.TABLES["groups"].arrow)} for row in told])["groups"].to_pylist()
    assert len(groups) == 2
    assert (groups[0]["ranks"], groups[0]["backend"], groups[0]["last_enqueued"], groups[0]["last_completed"]) == ([0, 1], "nccl", 7, 5)


def test_nothing_combines_to_all_tables_empty() -> None:
    tables = ingest.combine([])
    assert {name: len(table) for name, table in tables.items()} == dict.fromkeys(schema.TABLES, 0)


def test_plain_and_dictionary_text_combine() -> None:
    arrow = schema.TABLES["host"].arrow
    plain = pa.Table.from_pylist([{"rank": 0, "kind": "gc"}], arrow)
    place = arrow.get_field_index("kind")
    coded = plain.set_column(place, "kind", plain["kind"].dictionary_encode())
    assert ingest.combine([{"host": plain}, {"host": coded}])["host"]["kind"].to_pylist() == ["gc", "gc"]
