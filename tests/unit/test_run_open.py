# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Opening what users have: run directories whole, damaged, live, and of several attempts; traces and dumps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from analysis_rows import append, at, collective, step, two_ranks, write_run

from dtscope_jupyter import places, rundir, schema, segments, store
from dtscope_jupyter import run as runs
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view import offline

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_directory(tmp_path: Path) -> None:
    write_run(tmp_path / "ddp", two_ranks(), world_size=2)
    run = runs.open(str(tmp_path / "ddp"))
    assert (run.name, run.path, run.world_size, run.ranks, run.attempts) == ("ddp", tmp_path / "ddp", 2, [0, 1], [0])
    assert set(run.tables) == set(schema.TABLES)
    assert {name: len(table) for name, table in run.tables.items() if len(table)} == {"steps": 6, "collectives": 12, "host": 6}
    assert repr(run) == "Run('ddp', world_size=2, ranks=2)"


def test_the_newest_attempt_is_opened_and_any_can_be(tmp_path: Path) -> None:
    write_run(tmp_path / "ddp", two_ranks(3), world_size=2)
    write_run(tmp_path / "ddp", two_ranks(1), world_size=2)
    run = runs.open(tmp_path / "ddp")
    assert run.attempts == [0, 1]
    assert len(run.tables["steps"]) == 2
    assert len(runs.Run.of_directory(tmp_path / "ddp", attempt=0).tables["steps"]) == 6
    with pytest.raises(DtscopeError, match="no attempt 7; choose from"):
        runs.Run.of_directory(tmp_path / "ddp", attempt=7)


def test_a_folder_of_runs_opens_the_newest(tmp_path: Path) -> None:
    write_run(tmp_path / "b-old", two_ranks(1), created_ns=1)
    write_run(tmp_path / "a-new", two_ranks(1), created_ns=2)
    assert runs.open(tmp_path).name == "a-new"


def test_where_the_notebook_lies_its_newest_run_opens_unless_there_are_traces(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a trace")
    write_run(tmp_path / "dtscope-runs" / "b-old", two_ranks(1), created_ns=1)
    write_run(tmp_path / "dtscope-runs" / "a-new", two_ranks(1), created_ns=2)
    assert runs.open(tmp_path).name == "a-new"
    assert places.newest_attempt(str(tmp_path)).run.name == "a-new"
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    assert (runs.open(tmp_path).name, len(runs.open(tmp_path).tables["spans"])) == (tmp_path.name, 1)


def test_a_pending_collective_counts_once_it_is_done(tmp_path: Path) -> None:
    attempt = write_run(tmp_path / "r", {"steps": [step(0, 0, 0, 90)]}, world_size=1)
    folder = attempt.rank_path(0)
    pending = collective(0, 4, None, None, enqueue_ns=at(10), state="scheduled", step=0)
    message = collective(0, 4, 1, 2, operation="send", state="completed", step=0)
    done = collective(0, 4, 10, 30, enqueue_ns=at(10), state="completed", step=0)
    unnumbered = [collective(0, None, start, start + 1, state="completed", step=0) for start in (40, 50)]
    append(folder, "collectives", [pending, message, *unnumbered, done])
    states = runs.open(tmp_path / "r").table("collectives")[["seq", "operation", "state"]]
    assert states.fillna(-1).to_numpy().tolist() == [
        [4, "send", "completed"], [-1, "all_reduce", "completed"], [-1, "all_reduce", "completed"], [4, "all_reduce", "completed"],
    ]


def test_a_live_run_is_followed(tmp_path: Path) -> None:
    attempt = write_run(tmp_path / "r", {"notes": [{"rank": 0, "kind": "scalar", "name": "loss", "value": 1.0}]}, world_size=2)
    run = runs.open(tmp_path / "r")
    assert len(run.tables["steps"]) == 0
    assert not run.refresh()
    append(attempt.rank_path(0), "steps", [step(0, 0, 0, 10)])
    attempt.rank_path(1).mkdir()
    append(attempt.rank_path(1), "steps", [step(1, 0, 0, 10)])
    assert run.refresh()
    assert not run.refresh()
    assert run.table("steps")["rank"].tolist() == [0, 1]
    assert run.ranks == [0, 1]


def test_polled_a_block_at_a_time_it_is_the_same_run(tmp_path: Path) -> None:
    rows = two_ranks(40)
    attempt = write_run(tmp_path / "r", {"notes": [{"rank": rank, "kind": "window"} for rank in range(2)]}, world_size=2)
    writers = {(rank, name): store.BlockWriter(attempt.rank_path(rank), name) for rank in range(2) for name in rows}
    run = runs.open(tmp_path / "r")
    for number in range(40):
        for (rank, name), writer in writers.items():
            mine = [row for row in rows[name] if row["rank"] == rank and row["step"] == number]
            pending = [row | {"state": "scheduled", "start_ns": None, "end_ns": None} for row in mine if name == "collectives"]
            for block in (pending, mine):
                writer.append(pa.RecordBatch.from_pylist(block, schema.TABLES[name].arrow))
        assert run.refresh()
    whole = runs.open(tmp_path / "r")
    assert len(run.tables["collectives"]) == len(whole.tables["collectives"]) == 160
    for name in schema.TABLES:
        keys = [key for key in ("rank", "step", "seq", "start_ns") if key in schema.TABLES[name].arrow.names]
        polled, read = (one.table(name).sort_values(keys).reset_index(drop=True) for one in (run, whole))
        pd.testing.assert_frame_equal(polled, read)
    assert run.overlap().equals(whole.overlap())


def test_damage_is_counted_in_notes_and_the_rest_is_read(tmp_path: Path) -> None:
    attempt = write_run(tmp_path / "r", two_ranks(), world_size=2)
    data = attempt.rank_path(1) / "steps.arrows"
    raw = bytearray(data.read_bytes())
    raw[-30] ^= 1
    data.write_bytes(raw)
    os.mkfifo(attempt.rank_path(0) / "spans.index")
    run = runs.open(tmp_path / "r")
    assert run.table("steps")["rank"].tolist() == [0, 0, 0]
    notes = run.table("notes")
    assert notes["rank"].tolist() == [0, 1]
    assert notes["kind"].tolist() == ["damaged", "damaged"]
    assert notes["text"].tolist() == ["spans can't be read: not a regular file", "1 damaged blocks of steps were skipped"]


def test_a_newer_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = write_run(tmp_path / "r", two_ranks(1), world_size=2)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    append(attempt.rank_path(0), "devices", [{"rank": 0, "time_ns": 1, "device": "cpu"}])
    monkeypatch.setattr(schema, "VERSION", schema.VERSION - 1)
    (text,) = runs.open(tmp_path / "r").table("notes")["text"]
    assert text == "2 blocks of devices are of a newer version and were skipped; update dtscope-jupyter"


def test_without_run_json_the_rank_folders_tell(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    (tmp_path / "r" / "run.json").write_text("{ not json")
    run = runs.open(tmp_path / "r")
    assert (run.name, run.world_size, run.ranks) == ("r", 2, [0, 1])


def test_hostile_entries_in_a_run_directory_are_ignored(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    write_run(tmp_path / "elsewhere", two_ranks(1), world_size=2)
    (tmp_path / "r" / "rank-0007").symlink_to(tmp_path / "elsewhere" / "rank-0000")
    (tmp_path / "r" / "rank-9").mkdir()
    (tmp_path / "r" / "rank-0003").write_text("a file")
    assert runs.open(tmp_path / "r").ranks == [0, 1]


@pytest.mark.parametrize("hostile", ["pipe", "deep", "huge"])
def test_a_hostile_run_json_is_as_none(tmp_path: Path, hostile: str) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    path = tmp_path / "r" / "run.json"
    path.unlink()
    if hostile == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("[" * 100_000 if hostile == "deep" else '{"name": "' + "x" * 2**25 + '"}')
    run = runs.open(tmp_path / "r")
    assert (run.name, run.world_size) == ("r", 2)


def test_a_log_that_is_a_pipe_is_left_out_of_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    os.mkfifo(tmp_path / "r" / "rank-0000" / "log.txt")
    (tmp_path / "r" / "rank-0001" / "log.txt").write_text("x" * 2**21 + "the end")
    assert "the end" in [one["text"][-7:] for one in offline._logs(runs.open(tmp_path / "r"))]


@pytest.mark.parametrize(("given", "message"), [
    ("nowhere", "'.*nowhere' does not exist; name a run directory, traces, dumps or a folder of them"),
    ([], "no path given"),
    (".", "nothing readable"),
])
def test_what_can_not_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DtscopeError, match=message) as caught:
        runs.open(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("given", "message"), [
    (["r", "r"], "'.*r' is a run directory, which is opened alone; see two runs side by side with run.compare"),
    ("r/rank-0001", "'.*rank-0001' is a part of the run directory 'r'; open that"),
    ("r/rank-0001/steps.arrows", "is a part of the run directory 'r'; open that"),
    ("r/run.json", "is a part of the run directory 'r'; open that"),
])
def test_parts_of_a_run_directory_are_one_line(tmp_path: Path, given: str | list[str], message: str) -> None:
    write_run(tmp_path / "r", two_ranks(1))
    with pytest.raises(DtscopeError, match=message):
        runs.open([tmp_path / one for one in given] if isinstance(given, list) else tmp_path / given)


def test_a_window_in_a_rank_folder_can_be_opened_alone(captures: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(1))
    shutil.copy(captures / "h200" / "ddp_healthy" / "rank1.json.gz", tmp_path / "r" / "rank-0001" / "trace-2.json.gz")
    for path in (tmp_path / "r" / "rank-0001", tmp_path / "r" / "rank-0001" / "trace-2.json.gz"):
        assert runs.open(path).ranks == [1]


def test_traces_in_folders_named_as_ranks_are_no_run_directory(captures: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank-000{rank}").mkdir()
        shutil.copy(captures / "h200" / "ddp_healthy" / f"rank{rank}.json.gz", tmp_path / f"rank-000{rank}" / "x.pt.trace.json.gz")
    run = runs.open(tmp_path)
    assert (run.attempt, run.ranks, len(run.tables["steps"])) == (None, [0, 1], 6)
    assert runs.open(tmp_path / "rank-0001").ranks == [1]


def test_whole_integers_stay_whole_in_frames(tmp_path: Path) -> None:
    write_run(tmp_path / "r", {"collectives": [collective(0, 1, 1, 2), collective(0, None, None, None)]}, world_size=1)
    frame = runs.open(tmp_path / "r").table("collectives")
    assert frame["start_ns"].dtype == pd.Int64Dtype()
    assert frame["start_ns"].iloc[0] == at(1)
    assert frame["start_ns"].isna().tolist() == [False, True]
    assert frame["process_group"].tolist() == ["0", "0"]


def test_gradients_carry_their_parameters(tmp_path: Path) -> None:
    parameters = [{"rank": r, "parameter_id": n, "parameter": f"layer{n}.weight"} for r in range(2) for n in range(2)]
    known = {"rank": 1, "step": 0, "parameter_id": 1, "local_norm": 0.5}
    gradients: list[dict[str, Any]] = [known, {"rank": 0, "step": 0, "parameter_id": 9}]
    write_run(tmp_path / "r", {"parameters": parameters, "gradients": gradients}, world_size=2)
    frame = runs.open(tmp_path / "r").table("gradients").sort_values("rank")
    assert frame["parameter"].fillna("unknown").tolist() == ["unknown", "layer1.weight"]
    assert list(frame.columns[:4]) == ["rank", "step", "parameter_id", "parameter"]


def test_an_unknown_table_is_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    with pytest.raises(DtscopeError, match="there is no table 'step'; choose from steps, collectives"):
        runs.open(tmp_path / "r").table("step")


def test_sql_over_the_tables(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    statement = "select rank, count(*) n, max(end_ns) - min(start_ns) t from collectives group by rank order by rank"
    found = runs.open(tmp_path / "r").sql(statement)
    assert found.to_numpy().tolist() == [[0, 6, 238_000_000], [1, 6, 233_000_000]]


@pytest.mark.parametrize("statement", [
    "select * from read_csv('/etc/passwd')",
    "copy steps to '{folder}/out.csv'",
    "attach '{folder}/data.db'",
    "install httpfs",
    "set enable_external_access = true",
    "select * from secret",
    "selec 1",
])
def test_sql_reaches_nothing_else(tmp_path: Path, statement: str) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    secret = pd.DataFrame({"a": [1]})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DtscopeError, match=r"^SQL: ") as caught:
        runs.open(tmp_path / "r").sql(statement.format(folder=tmp_path))
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert len(secret) == 1


def test_a_profiler_window_and_a_dump_in_rank_folders_are_part_of_the_run(captures: Path, tmp_path: Path) -> None:
    rows = {"steps": [step(rank, 12, 0, 50) for rank in range(2)]}
    attempt = write_run(tmp_path / "r", rows, world_size=4)
    for rank in range(2):
        shutil.copy(captures / "h200" / "ddp_one_bucket" / f"rank{rank}.json.gz", attempt.rank_path(rank) / "trace-000012.json.gz")
    (attempt.rank_path(1) / "trace-000020.json.gz").write_bytes(b"cut")
    run = runs.open(tmp_path / "r")
    assert run.table("spans").groupby("rank").size().min() > 1000
    assert sorted(set(run.table("spans")["step"].dropna())) == [12, 13, 14]
    assert run.table("steps")["source"].unique().tolist() == ["event"]
    assert any("trace-000020" in name for name in run.table("notes")["name"])
    assert not run.refresh()
    assert run.overlap(["rank", "step"])["source"].str.contains("profiler").all()


def test_opening_imports_neither_torch_nor_plotly(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    code = (
        "import sys, dtscope_jupyter as dts; run = dts.open(sys.argv[1]); run.tables, run.ranks, run.world_size;"
        "print([m for m in ('torch', 'plotly', 'IPython', 'duckdb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_opening_a_trace_imports_no_pandas_and_takes_nothing_from_arrows_pool(captures: Path) -> None:
    code = (
        "import sys, pyarrow, dtscope_jupyter as dts; run = dts.open(sys.argv[1]); assert len(run.tables['spans']) > 1000;"
        "print('pandas' in sys.modules, pyarrow.default_memory_pool().max_memory())"
    )
    trace = captures / "h200" / "ddp_one_bucket" / "rank0.json.gz"
    done = subprocess.run([sys.executable, "-c", code, str(trace)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0"]


def test_attempts_and_json_of_a_run_directory(tmp_path: Path) -> None:
    assert rundir.attempts(tmp_path / "nothing") == []
    first = rundir.create_attempt(tmp_path / "r", {"name": "r"})
    second = rundir.create_attempt(tmp_path / "r", {"name": "r"})
    assert [one.path for one in rundir.attempts(tmp_path / "r")] == [first.path, second.path]
    assert (first.path, second.path) == (tmp_path / "r", tmp_path / "r" / "attempt-1")
    assert first.meta["format"] == rundir.FORMAT
    modes = [path.stat().st_mode & 0o777 for path in (first.path, second.path, first.path / "run.json")]
    assert modes == [0o700, 0o700, 0o600]
    (tmp_path / "file").write_text("")
    with pytest.raises(DtscopeError, match="can't write the run directory"):
        rundir.create_attempt(tmp_path / "file" / "r", {})


def test_a_killed_writer_loses_only_what_was_not_written(tmp_path: Path) -> None:
    attempt = rundir.create_attempt(tmp_path / "r", {"world_size": 1})
    attempt.rank_path(0).mkdir()
    code = (
        "import sys, os, signal, pathlib, pyarrow as pa\n"
        "from dtscope_jupyter import schema, store\n"
        "writer = store.BlockWriter(pathlib.Path(sys.argv[1]), 'steps')\n"
        "for n in range(1000):\n"
        "    writer.append(pa.RecordBatch.from_pylist([{'rank': 0, 'step': n}], schema.STEPS.arrow))\n"
        "    if n == 700:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(attempt.rank_path(0))], check=False)
    assert done.returncode == -9
    assert runs.open(tmp_path / "r").table("steps")["step"].tolist() == list(range(701))


def test_tables_are_of_the_schema(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(1), world_size=2)
    for name, table in runs.open(tmp_path / "r").tables.items():
        assert table.column_names == schema.TABLES[name].arrow.names
        for field, wanted in zip(table.schema, schema.TABLES[name].arrow, strict=True):
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            assert plain == wanted.type
    assert segments.ENTRY_BYTES == 32


@pytest.mark.parametrize("wrong", [None, 5, "x" * 5000, "a\0b", [], [None]])
def test_what_is_no_path_is_refused_in_one_line(wrong: object) -> None:
    with pytest.raises(DtscopeError) as caught:
        runs.open(wrong)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
