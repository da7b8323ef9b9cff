# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Flight Recorder dumps of every version and backend, and pickles that are none."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_files import GLOO, dump, entry, pickled

from dtscope_jupyter import ingest
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.ingest import files, flight_recorder, unpickle
from dtscope_jupyter.ingest.files import Unreadable
from dtscope_jupyter.ingest.unpickle import plain_value

if TYPE_CHECKING:
    from dtscope_jupyter.ingest.part import Part

T = 1_795_993_000_000_000_000
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, inner)
        | st.tuples(inner, inner, inner, inner)
    ),
    max_leaves=30,
)


def _rows(path: Path, name: str = "collectives", rank: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ingest.read([path], rank=rank).tables[name].to_pylist()
    return found


@pytest.mark.parametrize("version", ["2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10"])
@pytest.mark.parametrize("form", ["pickle2", "pickle4", "pickle5", "json"])
def test_every_version_and_form(tmp_path: Path, version: str, form: str) -> None:
    old = [] if version in ("2.9", "2.10") else ["thread_id", "thread_name"]
    entries = [{k: v for k, v in entry(n, T + n, duration_ms=2.5).items() if k not in old} for n in (1, 2)]
    value = dump(entries, version=version)
    path = tmp_path / "nccl_trace_rank_3"
    if form == "json":
        status = {k: {a: str(b) for a, b in v.items()} for k, v in value["pg_status"].items()}
        path.write_text(json.dumps(value | {"pg_status": status}))
    else:
        pickled(path, value, int(form[-1]))
    first, second = _rows(path)
    assert (first["rank"], first["seq"], second["seq"], first["process_group"], first["group_size"]) == (3, 1, 2, "0", 2)
    assert (first["operation"], first["bytes"], first["dtype"], first["shape"]) == ("all_reduce", 32, "float32", "[4, 2]")
    assert (first["enqueue_ns"], first["start_ns"], first["end_ns"], first["duration_ms"]) == (T + 1, None, None, 2.5)
    assert (first["state"], first["source"]) == ("completed", "flight_recorder")
    group = _rows(path, "groups")[0]
    assert (group["ranks"], group["description"], group["backend"]) == ([0, 1], "default_pg", "nccl")
    assert (group["last_enqueued"], group["last_started"], group["last_completed"]) == (2, None, 2)
    assert _rows(path, "notes") == []


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_0", 0), ("_dump_12", 12), ("nccl_trace_rank_3", 3), ("nccl_trace_rank_3.pkl", 3), ("fr_rank0.pkl", 0),
        ("comm_lib_trace_rank_7", 7),
        ("comm_lib_trace_rank_7.json", 7), ("rank3_dump.pickle", 3), ("dump5", 5), ("job12_rank-0042.bin", 42), ("trace.2.pkl", 2),
        ("rank-0004/flight_recorder.pkl", 4), ("rank-0004/flight_recorder-12.pkl", 4), ("nothing.pkl", None), ("gloo_trace_rank_10", 10),
    ],
)  # fmt: skip
def test_ranks_in_file_names(name: str, rank: int | None) -> None:
    assert files.rank_of(Path("/somewhere") / name) == rank


def test_dumps_without_rank_in_their_names_get_the_free_ones(tmp_path: Path) -> None:
    for name, first in (("a.pkl", 1), ("b.pkl", 1), ("x_rank_0.pkl", 1)):
        pickled(tmp_path / name, dump([entry(first, T)]))
    found = ingest.read([tmp_path])
    assert found.tables["collectives"]["rank"].to_pylist() == [0, 1, 2]
    assert set(found.tables["notes"]["text"].to_pylist()) == {
        "the file name tells no rank: taken as rank 1",
        "the file name tells no rank: taken as rank 2",
    }


def test_sends_and_receives_count_by_themselves_and_name_their_peer(tmp_path: Path) -> None:
    config = {"7": {"name": "7", "desc": "pipe", "ranks": "[2, 6]"}}
    sent = entry(4, T, p2p_seq_id=9, is_p2p=True, profiling_name="nccl:send 0->1", process_group=("7", "pipe"))
    received = sent | {"time_created_ns": T + 1, "p2p_seq_id": 10, "profiling_name": "nccl:recv 0<-1", "output_sizes": [[8]]}
    first, second = _rows(pickled(tmp_path / "_dump_2", dump([sent, received], pg_config=config)))
    assert (first["operation"], first["seq"], first["peer"], first["bytes"]) == ("send", 9, 6, 32)
    assert (second["operation"], second["seq"], second["peer"], second["bytes"]) == ("recv", 10, 6, 32)


def test_the_line_is_the_first_outside_of_torch_and_of_our_hooks(tmp_path: Path) -> None:
    frames = [
        {"name": "call", "filename": "/home/me/dtscope_jupyter/agent/collectives.py", "line": 231},
        {"name": "all_reduce", "filename": "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", "line": 2806},
        {"name": "step", "filename": "/home/me/torch_jobs/train.py", "line": 41},
        {"name": "<module>", "filename": "/home/me/torch_jobs/train.py", "line": 99},
    ]
    lines = [
        row["line"] for row in _rows(pickled(tmp_path / "_dump_0", dump([entry(1, T, frames=frames), entry(2, T, frames=frames[:2])])))
    ]
    assert lines == ["/home/me/torch_jobs/train.py:41", None]


def test_gloo_tells_completion_by_retired_and_groups_by_entries() -> None:
    for name in ("fr_rank0.pkl", "comm_lib_trace_rank_0.json"):
        rows = _rows(GLOO / name)
        assert {row["state"] for row in rows} == {"completed"}
        assert [row["start_ns"] for row in rows] == [None] * len(rows)
        groups = {row["process_group"]: row for row in _rows(GLOO / name, "groups")}
        assert set(groups) == {"0", "1"}
        assert (groups["0"]["ranks"], groups["0"]["backend"], groups["0"]["last_started"]) == (None, "gloo", None)
        assert groups["0"]["last_completed"] == max(row["seq"] for row in rows if row["process_group"] == "0")
    assert {row["line"].rpartition(":")[0] for row in _rows(GLOO / "fr_rank0.pkl")} == {"/home/user/train.py"}


def test_a_pending_gloo_collective_stays_pending(tmp_path: Path) -> None:
    pending = entry(2, T, profiling_name="gloo:all_reduce", state="scheduled", retired=False)
    done = entry(1, T, profiling_name="gloo:all_reduce", state="scheduled", retired=True)
    assert [row["state"] for row in _rows(pickled(tmp_path / "_dump_0", dump([done, pending])))] == ["completed", "scheduled"]


def test_a_dump_without_entries_still_tells_of_its_rank(tmp_path: Path) -> None:
    value = dump([])
    del value["entries"]
    path = tmp_path / "_dump_9"
    path.write_text(json.dumps(value))
    assert [(row["rank"], row["process_group"]) for row in _rows(path, "groups")] == [(9, "0")]
    assert _rows(path) == []


def test_progress_falls_to_groups_in_order_of_their_making(tmp_path: Path) -> None:
    config = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("0", "12", "5")}
    status = {
        n: {"last_enqueued_collective": int(n) * 10, "last_started_collective": -1, "last_completed_collective": 0} for n in ("0", "3", "4")
    }
    value = dump([entry(1, T, pg_id=3, process_group=("5", "x"))], pg_config=config, pg_status=status)
    groups = {row["process_group"]: row["last_enqueued"] for row in _rows(pickled(tmp_path / "_dump_0", value), "groups")}
    assert groups == {"0": 0, "5": 30, "12": 40}
    value["entries"][0]["process_group"] = ("12", "x")
    groups = {row["process_group"]: row["last_enqueued"] for row in _rows(pickled(tmp_path / "_dump_0", value), "groups")}
    assert groups == {"0": None, "5": None, "12": 30}, "an entry contradicts: only what entries tell"


def test_two_dumps_of_a_rank_are_one_and_the_further_one_stands(tmp_path: Path) -> None:
    early = [entry(1, T), entry(2, T + 5, state="scheduled", retired=False)]
    pickled(tmp_path / "rank0_early.pkl", dump(early))
    pickled(tmp_path / "rank0_late.pkl", dump([entry(2, T + 5, duration_ms=1.0), entry(3, T + 9, state="started", retired=False)]))
    rows = sorted(_rows(tmp_path), key=lambda row: row["seq"])
    assert [(row["seq"], row["state"]) for row in rows] == [(1, "completed"), (2, "completed"), (3, "started")]
    assert _rows(tmp_path, "groups")[0]["last_enqueued"] == 3


@pytest.mark.parametrize(
    "bad",
    [
        3,
        None,
        [],
        {"time_created_ns": "soon"},
        {"collective_seq_id": [1]},
        {"frames": 3},
        {"process_group": "0"},
        {"time_created_ns": 2**63},
    ],
)
def test_a_bad_entry_costs_only_itself(tmp_path: Path, bad: Any) -> None:
    spoilt = entry(2, T) | bad if isinstance(bad, dict) else bad
    path = pickled(tmp_path / "_dump_0", dump([entry(1, T)]) | {"entries": [entry(1, T), spoilt, entry(3, T)]})
    assert [row["seq"] for row in _rows(path)] == [1, 3]
    assert "1 entries are no such thing" in _rows(path, "notes")[0]["text"]


def _deep(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("sizes", [[[2**62, 2**62]], [[10**30] * 99], [[-1]], ["x"], [None], [[[2]], [[3]]], _deep(200)])
def test_absurd_sizes_give_no_bytes(tmp_path: Path, sizes: Any) -> None:
    changes = {"input_sizes": sizes, "output_sizes": [], "profiling_name": "nccl:_allgather_base"}
    size = _rows(pickled(tmp_path / "_dump_0", dump([entry(1, T, **changes)])))[0]["bytes"]
    assert size is None or size == (2 + 3) * 4 * 2


@pytest.mark.parametrize(
    "value", [3, [], "x", {"a": 1}, {"entries": 5}, {"entries": [], "pg_status": 3}, {"entries": [], "pg_config": {"0": 1}}]
)
def test_what_is_no_dump_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(DtscopeError, match="no Flight Recorder dump"):
        ingest.read([pickled(tmp_path / "_dump_0", value)])


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/dtscope-owned",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(dump([entry(1, T)]) | {"evil": _Runs()}, 2), pickle.dumps(_Runs(), 4), pickle.dumps(Path("x"), 2),
        b"\x80\x02cos\nsystem\n(X\x01\x00\x00\x00xtR.", b"\x80\x02(ios\nsystem\n.", b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02}(X\x01\x00\x00\x00aX\x01\x00\x00\x00bub.", b"\x80\x02\x82\x01.", b"\x80\x02Px\n.", b"\x80\x02NQ.", b"\x80\x05\x97.",
    ],
)  # fmt: skip
def test_a_pickle_with_anything_but_plain_values_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "_dump_0"
    path.write_bytes(data)
    with pytest.raises(
        DtscopeError, match=r"_dump_0: refused: the pickle holds more than plain values \(opcode \w+\), so it might carry code"
    ):
        ingest.read([path])
    assert not Path("/tmp/dtscope-owned").exists()


def test_a_huge_memo_index_costs_no_memory() -> None:
    """The C unpickler would set aside 64 GiB for this."""
    assert plain_value(b"\x80\x02Nr\xff\xff\xff\xff.") is None


@pytest.mark.parametrize("unit", [b"]", b"]a", b"N", b"(", b"}"])
def test_a_pickle_of_endless_values_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: bytes) -> None:
    """A byte of it would take 64 of memory."""
    monkeypatch.setattr(unpickle._Plain, "left", 10_000)
    path = tmp_path / "_dump_0"
    path.write_bytes(b"\x80\x04]" + unit * 20_000 + b".")
    with pytest.raises(DtscopeError, match="no whole pickle: more than 4 Mi steps, which no dump needs: given up"):
        ingest.read([path])


def test_json_of_endless_values_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "_dump_0.json"
    path.write_bytes(b'{"entries": [' + b"[]," * 9_000_000 + b"[]]}")
    with pytest.raises(DtscopeError, match="more than 16 Mi values, which no dump holds: given up"):
        ingest.read([path])


@settings(max_examples=150, deadline=None)
@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_values_come_back_as_they_were(value: Any, protocol: int) -> None:
    assert plain_value(pickle.dumps(value, protocol)) == value


def _part_or_reason(path: Path) -> Part | str:
    try:
        return flight_recorder.read(path)
    except Unreadable as error:
        return str(error)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_pickles_are_refused_or_plain(data: st.DataObject) -> None:
    raw = bytearray((GLOO / "fr_rank0.pkl").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(1, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(raw)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_dump_0"
        path.write_bytes(raw[:cut])
        found = _part_or_reason(path)
    if isinstance(found, str):
        assert len(found.splitlines()) == 1
    else:
        assert found.tables["collectives"].num_rows <= 30


def test_only_opcodes_of_plain_values_are_known() -> None:
    from dtscope_jupyter.ingest.unpickle import _Plain

    known = {info.name for info in pickletools.opcodes if ord(info.code) in _Plain.dispatch}
    code = [
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "INST",
        "OBJ",
        "NEWOBJ",
        "NEWOBJ_EX",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
    ]
    assert not known.intersection(code)
    assert {"EMPTY_DICT", "BINUNICODE", "SETITEMS"} <= known
