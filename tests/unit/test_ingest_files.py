# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input: one clear line a file, an error only where nothing was readable."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_files import GLOO, dump, entry, kernel, pickled, steps, trace, write

from dtscope_jupyter import ingest
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.ingest import files

BAD: dict[str, tuple[bytes, str]] = {
    "empty.json": (b"", "empty file"),
    "empty.json.gz": (gzip.compress(b""), "empty file"),
    "spaces.json": (b" \n ", "empty file"),
    "text.json": (b"hello", "neither a trace nor a dump nor a file of NCCL"),
    "binary.json.gz": (gzip.compress(bytes(range(256)) * 9), "neither a trace nor a dump nor a file of NCCL"),
    "utf16.json": ('{"traceEvents": []}'.encode("utf-16"), "text in UTF-16, while Kineto and torch write UTF-8"),
    "cut_early.json.gz": (
        gzip.compress(b'{"a": [' + b"1, " * 999)[:30],
        "JSON, but neither a Kineto trace nor a Flight Recorder dump: the gzip",
    ),
    "nothing.csv": (b"index, power.draw [W]\n0, y\n", "no line of it is a sample of a device"),
    "other.json": (b'{"a": 1}', "JSON, but neither a Kineto trace nor a Flight Recorder dump"),
    "list.json": (b"[1, 2]", "JSON, but neither a Kineto trace nor a Flight Recorder dump"),
    "head.json.gz": (gzip.compress(b"x" * 99)[:6], "the gzip data end early"),
    "cut.json": (b'{"schemaVersion": 1, "traceEv', "no list of traceEvents"),
    "none.json": (b'{"schemaVersion": 1, "traceEvents": []}', "no usable event among 0"),
    "wrong.json": (b'{"schemaVersion": 1, "traceEvents": {"a": 1}}', "no list of traceEvents"),
    "nested.json": (b'{"a": {"traceEvents": [{"ph": "X"}]}}', "no JSON object around traceEvents"),
    "untimed.json": (b'{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', "no usable event among 1"),
    "cut_dump.json": (b'{"entries": [', "no whole JSON"),
    "_dump_0": (b"\x80\x02}q\x00", "no whole pickle"),
    "topology.xml": (b'<system version="1"><cpu', "no whole XML"),
    "laughs.xml": (b'<!DOCTYPE x [<!ENTITY a "b">]><system version="1"/>', "refused: XML with a document type"),
    "graph.xml": (b'<graphs version="1"></graphs>', "no graph in NCCL's graph file"),
    "log.txt": (b"h:1:1 [0] NCCL INFO Bootstrap : Using eth0\n", "no line of NCCL about devices or communicators"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_alone_is_an_error_of_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(BAD[name][0])
    with pytest.raises(DtscopeError) as caught:
        ingest.read([tmp_path / name])
    message = str(caught.value)
    assert f"{name}: {BAD[name][1]}" in message
    assert "\n" not in message
    assert message.endswith("give Kineto traces, Flight Recorder dumps or NCCL's files")


def test_bad_files_beside_a_good_one_are_notes(tmp_path: Path) -> None:
    for name, (data, _) in BAD.items():
        (tmp_path / name).write_bytes(data)
    write(tmp_path / "good.json", trace([*steps(1), kernel("k", 1, 1, 1)]))
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    found = ingest.read([tmp_path])
    notes = {row["name"]: row for row in found.tables["notes"].to_pylist()}
    assert found.files == [tmp_path / "good.json"]
    assert set(notes) == {*BAD, "pipe.json", "dangling.json"}
    for name, (_, reason) in BAD.items():
        assert reason in notes[name]["text"]
        assert (notes[name]["kind"], notes[name]["rank"]) == ("unreadable", -1)


def test_a_path_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(DtscopeError, match=r"no file or folder '.*nowhere': give a trace"):
        ingest.read([tmp_path / "nowhere"])


def test_files_are_found_once_and_hidden_ones_not(tmp_path: Path) -> None:
    for name in ("a.json", ".hidden.json", "sub/b.json", ".git/c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = list(files.find([tmp_path, tmp_path / "a.json", tmp_path / ".hidden.json"]))
    assert found == [tmp_path / "a.json", tmp_path / "sub" / "b.json", tmp_path / ".hidden.json"]


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(DtscopeError, match=r"nothing readable in .* \(no file there\)"):
        ingest.read([tmp_path])


def test_a_file_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "good.json", trace([kernel("k", 1, 1, 1)]))
    write(tmp_path / "secret.json", trace([kernel("k", 1, 1, 1)]))
    real = Path.open

    def refusing(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == "secret.json":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refusing)
    notes = ingest.read([tmp_path]).tables["notes"].to_pylist()
    assert ("secret.json", "Permission denied") in [(note["name"], note["text"]) for note in notes]


def test_a_zip_bomb_is_bounded_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LEAST_LIMIT", 4 * 2**20)
    path = tmp_path / "bomb.json.gz"
    head = b'{"traceEvents": [' + json.dumps(kernel("k", 1, 1, 1)).encode()
    path.write_bytes(gzip.compress(head + b" " * (64 * 2**20)))
    with pytest.raises(DtscopeError, match=r"more than \d+ MiB come out of \d+ bytes: given up, as it looks like a zip bomb"):
        ingest.read([path])


def test_the_bound_of_a_real_trace_is_far_away() -> None:
    with files.Stream(GLOO / "rank0.json.gz") as stream:
        assert stream.limit >= 2**30
        assert len(stream.rest(2**26)) < stream.limit / 1000


def test_ten_thousand_files_are_read_file_by_file(tmp_path: Path) -> None:
    good = json.dumps(dump([entry(1, 10)])).encode()
    for number in range(10_000):
        (tmp_path / f"dump_rank_{number}").write_bytes(good if number < 100 else b"nothing")
    found = ingest.read([tmp_path])
    assert len(found.files) == 100
    assert found.tables["notes"].num_rows == 9_900
    assert sorted(found.tables["collectives"]["rank"].to_pylist()) == list(range(100))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=2000), max_size=4), st.integers(1, 5000))
def test_gzip_members_come_out_whole(members: list[bytes], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gz"
        path.write_bytes(b"".join(gzip.compress(member) for member in [b"start", *members]) + b"\0" * 7)
        with files.Stream(path) as stream:
            got = b"".join(iter(lambda: stream.read(size), b""))
        assert (got, stream.damage) == (b"start" + b"".join(members), None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_gzip_ends_early_and_says_so(data: st.DataObject) -> None:
    raw = bytearray((GLOO / "rank0.json.gz").read_bytes())
    whole = zlib.decompress(bytes(raw), 31)
    raw[data.draw(st.integers(10, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.json.gz"
        path.write_bytes(raw)
        with files.Stream(path) as stream:
            got = b"".join(iter(lambda: stream.read(4096), b""))
        assert got == whole or stream.damage


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(["x.json", "_dump_1", "x.json.gz", "x.xml", "x.log"]),
    st.sampled_from([b"", b"{", b"\x80\x02", b"<system", b"\x1f\x8b", b'{"traceEvents":[']),
)
def test_random_bytes_are_an_error_of_one_line(data: bytes, name: str, head: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(head + data)
        with pytest.raises(DtscopeError) as caught:
            ingest.read([path])
    assert len(str(caught.value).splitlines()) == 1


def test_ranks_of_dumps_and_traces_meet(tmp_path: Path) -> None:
    write(tmp_path / "trace_rank1.json", trace([*steps(1), kernel("k", 1, 1, 1)], rank=1))
    pickled(tmp_path / "_dump_1", dump([entry(1, 10)]))
    found = ingest.read([tmp_path])
    assert {table.column("rank").to_pylist()[0] for table in found.tables.values() if table.num_rows} == {1}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("worker0.1690857026123.pt.trace.json", None), ("node1_4711.1690857026123456789.pt.trace.json.gz", None),
        ("trace.20260101.json", None),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34), ("trace_3.json", 3), ("step_100_rank2.json", 2), ("_dump_1234567", 1234567),
    ],
)  # fmt: skip
def test_a_time_in_a_name_is_no_rank(name: str, rank: int | None) -> None:
    assert files.rank_of(Path("folder") / name) == rank
