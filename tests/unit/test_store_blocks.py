# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks on disk: what was written is read, what was damaged is skipped and counted, never misread."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter import schema, store

TABLE = "notes"


def _batch(first: int, rows: int) -> pa.RecordBatch:
    values = [
        {"rank": 1, "step": n, "time_ns": n * 7, "kind": "scalar", "name": f"n{n}", "value": n / 3, "text": "x" * (n % 50)}
        for n in range(first, first + rows)
    ]
    return pa.RecordBatch.from_pylist(values, schema.TABLES[TABLE].arrow)


def _written(folder: Path, sizes: list[int]) -> list[pa.RecordBatch]:
    writer = store.BlockWriter(folder, TABLE)
    batches, first = [], 0
    for rows in sizes:
        batches.append(_batch(first, rows))
        writer.append(batches[-1])
        first += rows
    writer.close()
    return batches


def _rows(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    batches = _written(tmp_path, [3, 0, 17, 1])
    reader = store.BlockReader(tmp_path, TABLE)
    assert _rows(list(reader.batches())) == _rows(batches)
    assert (reader.damaged, reader.newer) == (0, 0)


def test_every_table_comes_back_empty_of_surprises(tmp_path: Path) -> None:
    for name, table in schema.TABLES.items():
        writer = store.BlockWriter(tmp_path, name)
        writer.append(pa.RecordBatch.from_pylist([], table.arrow))
        writer.close()
        assert [batch.schema for batch in store.BlockReader(tmp_path, name).batches()] == [table.arrow]


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    _written(tmp_path, [1])
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    _written(tmp_path, [1])
    with pytest.raises(FileExistsError):
        store.BlockWriter(tmp_path, TABLE)


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    reader = store.BlockReader(tmp_path, TABLE)
    assert reader.poll() == []
    writer = store.BlockWriter(tmp_path, TABLE)
    for first in range(5):
        writer.append(_batch(first, 1))
        assert _rows(list(reader.batches())) == _rows([_batch(first, 1)])
        assert list(reader.batches()) == []
    writer.close()
    assert reader.damaged == 0


def test_a_poll_stays_near_its_limit_and_loses_nothing(tmp_path: Path) -> None:
    _written(tmp_path, [100] * 20)
    reader = store.BlockReader(tmp_path, TABLE)
    polls = []
    while blocks := reader.poll(limit=10_000):
        polls.append(blocks)
    assert len(polls) > 5
    assert sum(block.rows for blocks in polls for block in blocks) == 2000
    largest = max(len(block.data) for blocks in polls for block in blocks)
    assert all(sum(len(block.data) for block in blocks) < 10_000 + largest for blocks in polls)


def test_a_block_is_read_only_once_its_entry_is_whole(tmp_path: Path) -> None:
    _written(tmp_path, [4, 4])
    index = (tmp_path / f"{TABLE}.index").read_bytes()
    (tmp_path / f"{TABLE}.index").write_bytes(index[:-1])
    reader = store.BlockReader(tmp_path, TABLE)
    assert _rows(list(reader.batches())) == _rows([_batch(0, 4)])
    assert reader.damaged == 0
    (tmp_path / f"{TABLE}.index").write_bytes(index)
    assert _rows(list(reader.batches())) == _rows([_batch(4, 4)])


def test_bytes_that_come_late_are_waited_for(tmp_path: Path) -> None:
    _written(tmp_path, [4, 4])
    data = (tmp_path / f"{TABLE}.arrows").read_bytes()
    (tmp_path / f"{TABLE}.arrows").write_bytes(data[:-1])
    reader = store.BlockReader(tmp_path, TABLE)
    assert _rows(list(reader.batches())) == _rows([_batch(0, 4)])
    assert reader.damaged == 1
    (tmp_path / f"{TABLE}.arrows").write_bytes(data)
    assert _rows(list(reader.batches())) == _rows([_batch(4, 4)])
    assert reader.damaged == 0


def test_a_missing_data_file_is_counted(tmp_path: Path) -> None:
    _written(tmp_path, [4, 4])
    (tmp_path / f"{TABLE}.arrows").unlink()
    reader = store.BlockReader(tmp_path, TABLE)
    assert list(reader.batches()) == []
    assert reader.damaged == 3


def test_a_newer_version_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.BlockWriter(tmp_path, TABLE)
    writer.append(_batch(0, 2))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    writer.append(_batch(2, 2))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION - 1)
    writer.append(_batch(4, 2))
    writer.close()
    reader = store.BlockReader(tmp_path, TABLE)
    assert _rows(list(reader.batches())) == _rows([_batch(0, 2), _batch(4, 2)])
    assert (reader.damaged, reader.newer) == (0, 1)


def test_columns_of_other_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = schema.TABLES[TABLE]
    older = schema.Table(now.name, now.row, (*now.columns[:-1], schema.Column("later", pa.int64(), "what another release knows")))
    monkeypatch.setitem(schema.TABLES, TABLE, older)
    writer = store.BlockWriter(tmp_path, TABLE)
    writer.append(pa.RecordBatch.from_pylist([{"rank": 3, "kind": "window", "value": 2.5, "later": 1}], older.arrow))
    writer.close()
    monkeypatch.setitem(schema.TABLES, TABLE, now)
    reader = store.BlockReader(tmp_path, TABLE)
    (batch,) = reader.batches()
    assert batch.schema == now.arrow
    assert batch.to_pylist()[0] == {"rank": 3, "step": None, "time_ns": None, "kind": "window", "name": None, "value": 2.5, "text": None}
    assert reader.damaged == 0


def test_a_column_of_another_type_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = schema.TABLES[TABLE]
    other = schema.Table(now.name, now.row, (schema.Column("rank", pa.int64(), "", required=True), *now.columns[1:]))
    monkeypatch.setitem(schema.TABLES, TABLE, other)
    writer = store.BlockWriter(tmp_path, TABLE)
    writer.append(pa.RecordBatch.from_pylist([{"rank": 3, "kind": "window"}], other.arrow))
    writer.close()
    monkeypatch.setitem(schema.TABLES, TABLE, now)
    reader = store.BlockReader(tmp_path, TABLE)
    assert list(reader.batches()) == []
    assert reader.damaged == 1


@pytest.mark.parametrize("suffix", ["arrows", "index"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_no_regular_file_is_an_error_and_never_blocks(tmp_path: Path, suffix: str, kind: str) -> None:
    _written(tmp_path, [2])
    path = tmp_path / f"{TABLE}.{suffix}"
    moved = path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(moved)
    else:
        path.mkdir()
    with pytest.raises(OSError, match=suffix):
        store.BlockReader(tmp_path, TABLE).poll()


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    writer = store.BlockWriter(tmp_path, TABLE)
    writer.append(_batch(0, 3))
    size = (tmp_path / f"{TABLE}.arrows").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
        with pytest.raises(OSError, match="too large"):
            writer.append(_batch(3, 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / f"{TABLE}.arrows").stat().st_size == size
    writer.append(_batch(103, 2))
    writer.close()
    reader = store.BlockReader(tmp_path, TABLE)
    assert _rows(list(reader.batches())) == _rows([_batch(0, 3), _batch(103, 2)])
    assert reader.damaged == 0


def test_no_block_is_read_twice(tmp_path: Path) -> None:
    batches = _written(tmp_path, [3, 4])
    index = (tmp_path / f"{TABLE}.index").read_bytes()
    (tmp_path / f"{TABLE}.index").write_bytes(index + index)
    reader = store.BlockReader(tmp_path, TABLE)
    assert _rows(list(reader.batches())) == _rows(batches)
    assert reader.damaged == 3


_PLACE = st.floats(0, 1, exclude_max=True)
_DAMAGE = st.one_of(
    st.tuples(st.just("flip"), _PLACE, st.integers(1, 255)),
    st.tuples(st.just("cut"), _PLACE, st.just(0)),
    st.tuples(st.just("insert"), _PLACE, st.integers(1, 40)),
    st.tuples(st.just("delete"), _PLACE, st.integers(1, 40)),
    st.tuples(st.just("zero"), _PLACE, st.integers(1, 400)),
    st.tuples(st.just("repeat"), _PLACE, st.integers(1, 400)),
)


def _damaged(raw: bytes, damage: tuple[str, float, int]) -> bytes:
    kind, place, amount = damage
    at = int(place * len(raw))
    if kind == "flip":
        return raw[:at] + bytes([raw[at] ^ amount]) + raw[at + 1 :] if raw else raw
    if kind == "cut":
        return raw[:at]
    if kind == "insert":
        return raw[:at] + os.urandom(amount) + raw[at:]
    if kind == "delete":
        return raw[:at] + raw[at + amount :]
    if kind == "zero":
        return raw[:at] + bytes(len(raw[at : at + amount])) + raw[at + amount :]
    return raw[: at + amount] + raw[at:]


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    damages=st.lists(st.tuples(st.sampled_from(["arrows", "index"]), _DAMAGE), min_size=1, max_size=4),
)
def test_random_damage_never_crashes_and_never_yields_a_wrong_row(
    sizes: list[int], damages: list[tuple[str, tuple[str, float, int]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches = _written(folder, sizes)
        whole = {suffix: (folder / f"{TABLE}.{suffix}").read_bytes() for suffix in ("arrows", "index")}
        raw = dict(whole)
        for suffix, damage in damages:
            raw[suffix] = _damaged(raw[suffix], damage)
        for suffix, content in raw.items():
            (folder / f"{TABLE}.{suffix}").write_bytes(content)
        reader = store.BlockReader(folder, TABLE)
        read = list(reader.batches())
    places = [batches.index(batch) for batch in read if len(batch)]
    assert places == sorted(set(places)), "blocks come once, in order, and are what was written"
    lost = len([batch for batch in batches if len(batch)]) - len(places)
    if lost and raw["index"][: len(whole["index"])] == whole["index"]:
        assert reader.damaged >= lost, "what the index promises and the data does not hold is counted"


@settings(max_examples=60, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, 5), _PLACE), min_size=1, max_size=3, unique_by=lambda flip: flip[0]))
def test_flips_in_some_blocks_cost_those_blocks_only(flips: list[tuple[int, float]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches = _written(folder, [5] * 6)
        blocks = [block for block in store.BlockReader(folder, TABLE).poll() if not block.is_schema]
        raw = bytearray((folder / f"{TABLE}.arrows").read_bytes())
        for block, place in flips:
            raw[blocks[block].offset + int(place * len(blocks[block].data))] ^= 0x10
        (folder / f"{TABLE}.arrows").write_bytes(raw)
        reader = store.BlockReader(folder, TABLE)
        read = list(reader.batches())
    hit = {block for block, _ in flips}
    assert _rows(read) == _rows([batch for place, batch in enumerate(batches) if place not in hit])
    assert reader.damaged == len(hit)
