# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a trace piece by piece gives what reading it whole gives, however it is written, cut or spoilt."""

from __future__ import annotations

import gzip
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ingest_files import GLOO, event, kernel, trace

from dtscope_jupyter import ingest
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.ingest import columns, events, files, kineto, reader

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = st.sampled_from(["aten::mm", "}, {", '"}],[{', "ab\\", "\u00e9\n", "", "x" * 300, '"traceEvents": ['])
NESTED = st.recursive(
    st.none() | st.integers() | NAMES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
EVENTS = st.lists(
    st.builds(
        lambda name, ts, dur, tid, extra: {**event("cpu_op", name, ts, dur, tid), "args": {"stack": extra, "External id": 3}},
        NAMES,
        st.integers(0, 10**13),
        st.integers(0, 10**6),
        st.integers(0, 9) | st.just("PyTorch Profiler"),
        NESTED,
    ),
    max_size=40,
)
STYLES = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"indent": 0}])


def _events(data: bytes) -> tuple[list[tuple[Any, ...]], reader.Reader, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(data)
        with files.Stream(path) as stream:
            source = reader.Reader(stream)
            batches = list(source.batches())
    found = [(e.cat, e.name, e.ts, e.dur, e.tid) for batch in batches for e in batch.events]
    return found, source, sum(batch.skipped for batch in batches)


def _plain(written: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(e["cat"], e["name"], e["ts"], e["dur"], e["tid"]) for e in written]


@SLOW
@given(EVENTS, STYLES, st.integers(20, 400), NESTED)
def test_pieces_of_any_size_give_the_same_events(written: list[dict[str, Any]], style: dict[str, Any], piece: int, tail: Any) -> None:
    value = {"schemaVersion": 1, "before": tail, "traceEvents": written, "after": tail, "more": [{"a": 1}, {"b": 2}]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "PIECE_BYTES", piece)
        found, source, skipped = _events(json.dumps(value, **style).encode())
    assert found == _plain(written)
    assert (source.damage, skipped) == (None, 0)
    assert {k: source.around[k] for k in ("before", "after", "more")} == {k: value[k] for k in ("before", "after", "more")}


@SLOW
@given(EVENTS, STYLES)
def test_a_bare_list_of_events_is_a_trace(written: list[dict[str, Any]], style: dict[str, Any]) -> None:
    found, source, _ = _events(b" \n" + json.dumps(written, **style).encode())
    assert (found, source.damage) == (_plain(written), None)


@SLOW
@given(EVENTS, STYLES, st.integers(20, 400), st.data())
def test_a_cut_trace_gives_the_whole_events_before_the_cut(
    written: list[dict[str, Any]], style: dict[str, Any], piece: int, data: st.DataObject
) -> None:
    text = json.dumps(trace(written), **style).encode()
    start = text.index(b"[", text.index(b'"traceEvents"')) + 1
    cut = data.draw(st.integers(start, len(text) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "PIECE_BYTES", piece)
        found, source, _ = _events(text[:cut])
    assert found == _plain(written)[: len(found)]
    assert source.damage
    ends = [start + len(json.dumps(written[: n + 1], **style).encode()) for n in range(len(written))] if style == {} else []
    assert len(found) >= sum(end <= cut for end in ends) - 1


@SLOW
@given(EVENTS, st.data())
def test_spoilt_json_never_gives_an_event_that_was_not_written(written: list[dict[str, Any]], data: st.DataObject) -> None:
    text = bytearray(json.dumps(trace(written)).encode())
    start = text.index(b"[") + 1
    place = data.draw(st.integers(start, len(text) - 1))
    text[place:place] = data.draw(st.sampled_from([b"}", b"]", b"\x00", b"\xff", b'"', b"{{", b",,"]))
    try:
        found, source, skipped = _events(bytes(text))
    except files.Unreadable:
        return
    if source.damage:
        assert found == _plain(written)[: len(found)] or len(found) <= len(written)
    assert len(found) + skipped <= len(written) + 1


@pytest.mark.parametrize(
    "bad",
    [
        {"ph": "X", "ts": "soon", "dur": 1}, {"ph": "X", "ts": [1], "dur": {}}, {"ph": 7}, {"ts": 1}, "text", 3, None, [],
        {"ph": "X", "cat": 5}, {"ph": "?"}, {"ph": "X", "tid": {}}, {"ph": "X", "dur": "x", "args": []},
    ],
)  # fmt: skip
def test_an_event_that_is_none_costs_only_itself(bad: Any) -> None:
    good = [event("cpu_op", f"op{n}", n, 1) for n in range(4)]
    found, source, skipped = _events(json.dumps(trace([*good[:2], bad, *good[2:]])).encode())
    assert (found, skipped, source.damage) == (_plain(good), 1, None)


@pytest.mark.parametrize(
    "args", [[], 3, "x", {"correlation": "x"}, {"dtype": 3}, {"Process Group Name": 0, "Collective name": "allreduce"}]
)
def test_arguments_of_another_kind_cost_only_themselves(args: Any) -> None:
    odd = {**event("kernel", "ncclDevKernel_AllReduce", 3, 1), "args": args}
    gathered = columns.Columns()
    gathered.add(events.Batch(json.dumps([event("kernel", "k", 1, 1), odd]).encode()))
    assert (gathered.undecodable, len(gathered.device.joined())) == (0, 2)


def test_the_keys_around_may_come_after_the_events() -> None:
    text = json.dumps({"traceEvents": [event("cpu_op", "x", 1, 1)], "distributedInfo": {"rank": 3}, "baseTimeNanoseconds": 5}).encode()
    assert _events(text)[1].around == {"distributedInfo": {"rank": 3}, "baseTimeNanoseconds": 5}


def test_text_that_never_ends_an_event_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b'{"traceEvents": [')
        for _ in range(reader.MAX_EVENT_BYTES // 2**20 + 2):
            out.write(b"[" * 2**20)
    with pytest.raises(DtscopeError, match="no usable event among 0: no event ends within 64 MiB"):
        ingest.read([path])


def test_the_events_before_endless_text_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_EVENT_BYTES", 2**20)
    written = [event("cpu_op", f"op{n}", n, 1) for n in range(20_000)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace(written))[:-9] + ', {"ph": "X", "name": "' + "x" * 3 * 2**20)
    found = ingest.read([path])
    assert found.tables["spans"].num_rows > 19_000
    assert "no event ends within 1 MiB" in found.tables["notes"]["text"].to_pylist()[0]


def test_text_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": [' + "[" * 200_000)
    (tmp_path / "u.json").write_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + ', "traceEvents": []}')
    (tmp_path / "v.json").write_text('{"traceEvents": [{"ph": "X", "args": {"a": ' + "[" * 200_000 + "]" * 200_000 + "}}]}")
    with pytest.raises(DtscopeError, match="nothing readable"):
        ingest.read([tmp_path])


def test_numbers_that_are_none_are_mended() -> None:
    text = json.dumps(trace([event("gpu_memcpy", "Memcpy HtoD", 1, 1, bandwidth=1.5), event("kernel", "k", 2, 1)])).replace("1.5", "inf")
    found, source, skipped = _events(text.encode())
    assert ([name for _, name, *_ in found], source.damage, skipped) == (["Memcpy HtoD", "k"], None, 0)


@pytest.mark.parametrize("written", [b"k\xff", rb"k\ud800", rb"k\uDFFFz"])
def test_what_is_no_character_costs_only_itself(written: bytes) -> None:
    text = b'[{"ph":"X","cat":"kernel","name":"%s","ts":1,"dur":2},{"ph":"X","cat":"kernel","name":"g","ts":3,"dur":1}]' % written
    first, second = events.Batch(text).events
    assert (first.name[:2], second.name) == ("k\ufffd", "g")


def test_pairs_of_surrogates_stay_a_character() -> None:
    text = rb'[{"ph":"X","name":"\ud83d\ude00 \\ud800 \ud800","ts":1,"dur":2}]'
    assert [event.name for event in events.Batch(text).events] == ["\U0001f600 \\ud800 \ufffd"]


def test_a_byte_order_mark_is_passed_over() -> None:
    found, source, _ = _events(b"\xef\xbb\xbf" + json.dumps(trace([event("cpu_op", "x", 1, 1)])).encode())
    assert (len(found), source.damage) == (1, None)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2**43 * 1000 - 1), min_size=1, max_size=20))
def test_relative_times_are_exact_to_the_nanosecond(nanoseconds: list[int]) -> None:
    """As Kineto writes them: microseconds with three decimals."""
    values = json.loads("[" + ",".join(f"{ns // 1000}.{ns % 1000:03d}" for ns in nanoseconds) + "]")
    assert columns._nanoseconds(values).tolist() == nanoseconds


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1_600_000_000 * 10**9, 2_200_000_000 * 10**9), min_size=1, max_size=8), st.booleans())
def test_epoch_times_with_a_fraction_are_exact_too(nanoseconds: list[int], whole_first: object) -> None:
    texts = [f"{ns // 1000}.{ns % 1000:03d}" for ns in nanoseconds]
    if whole_first:
        texts[0], nanoseconds[0] = str(nanoseconds[0] // 1000), nanoseconds[0] // 1000 * 1000
    written = ",".join(f'{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{text},"dur":0.5}}' for text in texts)
    batch = events.Batch(b"[" + written.encode() + b"]")
    gathered = columns.Columns()
    gathered.add(batch)
    spans = gathered.device.joined()
    assert spans.start.tolist() == nanoseconds
    assert (spans.end - spans.start).tolist() == [500] * len(nanoseconds)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.integers() | st.floats(allow_nan=False) | st.decimals(allow_nan=False), max_size=10))
def test_absurd_times_are_left_out_not_wrapped(values: list[Any]) -> None:
    try:
        found = columns._nanoseconds(values) if not any(isinstance(v, Decimal) for v in values) else columns._decimal_nanoseconds(values)
    except columns._InexactError:
        return
    for value, got in zip(values, found.tolist(), strict=True):
        if value is None or abs(value) > 2**51:
            assert got == columns._NO_TIME
        else:
            assert abs(got - float(value) * 1000) <= 1 + abs(got) * 2**-50


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    bad = [event("kernel", "k", 5, -3), event("kernel", "k", 1e300, 1), {"ph": "X", "cat": "kernel", "name": "k"}, {"ph": "X", "ts": {}}]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace([event("user_annotation", "ProfilerStep#1", 0, 9), event("kernel", "k", 1, 1), *bad])))
    found = ingest.read([path])
    assert found.tables["spans"].num_rows == 2
    assert found.tables["notes"]["text"].to_pylist() == [
        "1 events are no such thing as Kineto writes: left out",
        "2 events have no usable ts or dur: left out",
        "1 events have a negative duration: left out",
    ]
    assert set(found.tables["notes"]["name"].to_pylist()) == {"t.json"}


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_a_truncated_gzip_gives_what_came_out(tmp_path: Path, share: float) -> None:
    data = (GLOO / "rank0.json.gz").read_bytes()
    whole = ingest.read([GLOO / "rank0.json.gz"]).tables["spans"]
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(data[: int(len(data) * share)])
    found = ingest.read([path])
    texts = found.tables["notes"]["text"].to_pylist()
    assert any("the gzip data end early" in text for text in texts)
    assert 0 < found.tables["spans"].num_rows < whole.num_rows + (share > 0.9)


def test_shuffled_events_give_the_same_figures(tmp_path: Path) -> None:
    import random

    value = json.loads(gzip.decompress((GLOO / "rank0.json.gz").read_bytes()))
    random.Random(3).shuffle(value["traceEvents"])
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(value))
    mixed, plain = (ingest.read([p]).tables for p in (path, GLOO / "rank0.json.gz"))
    assert mixed["steps"].to_pylist() == plain["steps"].to_pylist()
    assert mixed["collectives"].to_pylist() == plain["collectives"].to_pylist()


def test_a_trace_of_nothing_but_odd_events_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes as long as ten that are none: a small file may hold a thousand million."""
    monkeypatch.setattr(kineto, "_MOST_UNDECODABLE", 1000)
    good = json.dumps(kernel("k", 1, 1, 1))
    for begin, found in (("", None), (f"{good},", 1)):
        path = tmp_path / "rank0.json"
        path.write_text('{"schemaVersion": 1, "traceEvents": [' + begin + "{}," * 600_000 + "{}]}")
        if found is None:
            with pytest.raises(DtscopeError, match=r"given up after \d+ events that are no such thing as Kineto writes"):
                ingest.read([path])
        else:
            tables = ingest.read([path]).tables
            assert len(tables["spans"]) == found
            assert any("given up after" in text for text in tables["notes"]["text"].to_pylist())


@pytest.mark.parametrize("tail", ["", ",", "\n,\n", "]", "]\n", ",]}", "]}[1]", '], "traceName": "x'])
def test_a_trace_that_ends_behind_an_event_loses_none(tmp_path: Path, tail: str) -> None:
    """Cut there, or with a comma too many, or with something else behind it."""
    whole = json.dumps(trace([kernel("k", 10.0 * n, 1, n) for n in range(9)]))
    path = tmp_path / "rank0.json"
    path.write_text(whole[: whole.index('], "traceName"')] + tail)
    tables = ingest.read([path]).tables
    assert len(tables["spans"]) == 9
    damage = [row["text"] for row in tables["notes"].to_pylist() if row["kind"] == "damaged"]
    assert damage == ["the JSON ends early or is damaged: the 9 whole events before are used"]
