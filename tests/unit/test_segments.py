# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter import schema, segments, store
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.segments import Segment, SegmentReader, SegmentWriter

TABLE = "notes"
LIMIT = 2**40


def _batch(first: int, rows: int) -> pa.RecordBatch:
    arrow = schema.TABLES[TABLE].arrow
    columns = {name: [None] * rows for name in arrow.names} | {
        "rank": [3] * rows,
        "kind": ["scalar"] * rows,
        "value": [float(first + i) for i in range(rows)],
    }
    return pa.record_batch(columns, schema=arrow)


def _write(folder: Path, counts: list[int]) -> None:
    writer = store.BlockWriter(folder, TABLE)
    first = 0
    for count in counts:
        writer.append(_batch(first, count))
        first += count
    writer.close()


def _values(folder: Path) -> list[float]:
    return [value for batch in store.BlockReader(folder, TABLE).batches() for value in batch.column("value").to_pylist()]


def _files(folder: Path) -> tuple[bytes, bytes]:
    return (folder / f"{TABLE}.arrows").read_bytes(), (folder / f"{TABLE}.index").read_bytes()


def _copy(source: SegmentReader, folder: Path, limit: int) -> int:
    """Ships all that is new, opening the writer anew for each segment as after a kill; returns the rows."""
    rows = 0
    while segment := source.read(limit):
        descriptor = os.open(folder, os.O_RDONLY)
        writer = SegmentWriter(descriptor, TABLE)
        rows += writer.append(segment, LIMIT)
        assert writer.end == segment.end
        writer.close()
        os.close(descriptor)
    return rows


def test_entry_is_as_the_store_writes_it(tmp_path: Path) -> None:
    _write(tmp_path, [1])
    data, index = _files(tmp_path)
    assert len(index) == 2 * segments.ENTRY_BYTES
    entry = segments.parse(index, segments.ENTRY_BYTES)
    assert entry is not None
    assert (entry.end, entry.rows) == (len(data), 1)


@given(counts=st.lists(st.integers(1, 5), max_size=8), limit=st.integers(1, 4000))
def test_copy_has_the_same_bytes(counts: list[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        source, target = Path(ours), Path(theirs)
        _write(source, counts)
        assert _copy(SegmentReader(source, TABLE), target, limit) == sum(counts)
        assert _files(source) == _files(target)


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=6), cut=st.integers(0, 4000), cut_index=st.integers(0, 300))
def test_copy_goes_on_after_a_kill_at_any_byte(counts: list[int], cut: int, cut_index: int) -> None:
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        source, target = Path(ours), Path(theirs)
        _write(source, counts)
        data, index = _files(source)
        (target / f"{TABLE}.arrows").write_bytes(data[:cut])
        (target / f"{TABLE}.index").write_bytes(index[:cut_index])
        descriptor = os.open(target, os.O_RDONLY)
        writer = SegmentWriter(descriptor, TABLE)
        reader = SegmentReader(source, TABLE)
        reader.seek(writer.end)
        writer.close()
        os.close(descriptor)
        _copy(reader, target, 2**20)
        assert _files(source) == _files(target)


@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=6), place=st.integers(0, 10**6), mask=st.integers(1, 255))
def test_a_damaged_byte_costs_its_block_only(counts: list[int], place: int, mask: int) -> None:
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        source, target = Path(ours), Path(theirs)
        _write(source, counts)
        path = source / f"{TABLE}.{'arrows' if place % 2 else 'index'}"
        raw = bytearray(path.read_bytes())
        raw[place // 2 % len(raw)] ^= mask
        path.write_bytes(raw)
        reader = SegmentReader(source, TABLE)
        _copy(reader, target, 2**20)
        assert reader.damaged >= 1
        whole = [float(value) for value in range(sum(counts))]
        assert _values(target) == _values(source)
        assert sorted(set(whole) & set(_values(target))) == _values(target)
        assert len(_values(target)) >= sum(counts) - max(counts)


def test_sent_twice_is_written_once(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    _write(source, [2, 3])
    segment = SegmentReader(source, TABLE).read(2**20)
    assert segment is not None
    descriptor = os.open(target, os.O_RDONLY)
    writer = SegmentWriter(descriptor, TABLE)
    assert [writer.append(segment, LIMIT), writer.append(segment, LIMIT)] == [5, 0]
    writer.close()
    os.close(descriptor)
    assert _files(source) == _files(target)


@given(data=st.binary(max_size=400), entries=st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes, entries: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        descriptor = os.open(folder, os.O_RDONLY)
        writer = SegmentWriter(descriptor, TABLE)
        with pytest.raises(DtscopeError):
            writer.append(Segment(TABLE, 0, entries, data, 0, 0), LIMIT)
        assert writer.end == 0
        writer.close()
        os.close(descriptor)
        assert _files(Path(folder)) == (b"", b"")


def test_a_far_offset_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    _write(source, [1])
    segment = SegmentReader(source, TABLE).read(2**20)
    assert segment is not None
    descriptor = os.open(target, os.O_RDONLY)
    writer = SegmentWriter(descriptor, TABLE)
    with pytest.raises(DtscopeError, match="passes 100 bytes"):
        writer.append(segment, 100)
    writer.close()
    os.close(descriptor)
    assert _files(target) == (b"", b"")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_bytes(b"keep")
    folder = tmp_path / "rank"
    folder.mkdir()
    (folder / f"{TABLE}.arrows").symlink_to(outside)
    descriptor = os.open(folder, os.O_RDONLY)
    with pytest.raises(OSError, match="symbolic links"):
        SegmentWriter(descriptor, TABLE)
    os.close(descriptor)
    assert outside.read_bytes() == b"keep"
