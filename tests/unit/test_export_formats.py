# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Exports, read back with the readers of other tools."""

from __future__ import annotations

import io
import json
import stat
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
from analysis_rows import at, two_ranks, write_run
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from dtscope_jupyter import run as runs
from dtscope_jupyter import schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.export import FORMATS, perfetto, write
from dtscope_jupyter.export.report import report

_SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


class _Read:
    """A trace as its reader sees it: tracks by name and process, whole slices, and the slices of each flow."""

    def __init__(self, raw: bytes) -> None:
        trace = Trace.FromString(raw)
        names: dict[int, str] = {}
        self.tracks: dict[int, tuple[str, str]] = {}
        self.slices: list[tuple[str, str, str, int, int]] = []
        self.flows: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.ended: Counter[int] = Counter()
        processes: dict[int, str] = {}
        open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for packet in trace.packet:
            for one in packet.interned_data.event_names:
                names[one.iid] = one.name
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                if track.HasField("process"):
                    processes[track.uuid] = track.process.process_name
                else:
                    self.tracks[track.uuid] = (processes[track.parent_uuid], track.name)
            if packet.HasField("track_event"):
                event = packet.track_event
                process, title = self.tracks[event.track_uuid]
                if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                    open_slices[event.track_uuid].append((names[event.name_iid], packet.timestamp))
                    for flow in (*event.flow_ids, *event.terminating_flow_ids):
                        self.flows[flow].append((packet.timestamp, process))
                    self.ended.update(event.terminating_flow_ids)
                else:
                    name, begun = open_slices[event.track_uuid].pop()
                    self.slices.append((process, title, name, begun, packet.timestamp))
        assert not any(open_slices.values()), "every slice ends"
        self.processes = sorted(processes.values())


def _perfetto(run: runs.Run) -> _Read:
    file = io.BytesIO()
    perfetto.write(run.tables, file)
    return _Read(file.getvalue())


def test_perfetto_has_a_process_a_rank_and_arrows_between_the_ranks_of_a_collective(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    read = _perfetto(runs.open(tmp_path / "r"))
    assert read.processes == ["rank 0", "rank 1"]
    collectives = [one for one in read.slices if one[1] == "process group 0"]
    assert ("rank 1", "process group 0", "all_reduce", at(145), at(158)) in collectives
    assert len(collectives) == 12
    assert [one for one in read.slices if one[2] == "step 2"] == [(f"rank {r}", "steps", "step 2", at(200), at(290)) for r in range(2)]
    assert sum(one[1:3] == ("host", "collective_wait") for one in read.slices) == 6
    assert len(read.flows) == 6
    for begins in read.flows.values():
        assert [process for _, process in sorted(begins)] == ["rank 0", "rank 1"], "from the first to begin to the last"
    assert set(read.ended.values()) == {1}


def test_perfetto_of_real_ranks(captures: Path, tmp_path: Path) -> None:
    run = runs.open(captures / "h200" / "ddp_one_bucket")
    path = run.export("perfetto", tmp_path / "trace.pftrace")
    read = _Read(path.read_bytes())
    spans, collectives = run.table("spans"), run.table("collectives")
    on_tracks = Counter((process, title.split()[0]) for process, title, *_ in read.slices)
    for rank in range(4):
        mine = spans[spans["rank"] == rank]
        assert on_tracks[f"rank {rank}", "stream"] == mine["stream"].notna().sum()
        assert on_tracks[f"rank {rank}", "thread"] == mine["thread"].notna().sum()
        timed = collectives[(collectives["rank"] == rank) & collectives["start_ns"].notna()]
        assert on_tracks[f"rank {rank}", "process"] == len(timed)
    on_streams = sorted(one[3:] for one in read.slices if one[1].startswith("stream"))
    kernels_alone = spans[spans["stream"].notna()]
    assert on_streams == sorted(zip(kernels_alone["start_ns"], kernels_alone["end_ns"], strict=True)), "exact to the nanosecond"
    each = run.waits("collective")
    assert len(read.flows) == len(each)
    assert all(len(begins) == 4 for begins in read.flows.values())
    kernels = Counter(name for _, title, name, *_ in read.slices if title.startswith("stream"))
    assert kernels == Counter(spans[spans["stream"].notna()]["name"])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=25))
def test_slices_of_a_lane_nest_or_follow_each_other(rows: list[tuple[int, int]]) -> None:
    both = np.array(rows, dtype=np.int64).reshape(-1, 2)
    start, end = both[:, 0], both[:, 0] + both[:, 1]
    lanes = perfetto.lanes(start, end)
    assert sorted(row for lane in lanes for row in lane) == list(range(len(rows)))
    for lane in lanes:
        for place, first in enumerate(lane):
            for second in lane[place + 1 :]:
                nested = start[first] <= start[second] and end[second] <= end[first]
                assert nested or end[first] <= start[second]


def test_parquet_is_every_table_as_the_schema_has_it(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    run = runs.open(tmp_path / "r")
    folder = write(run, "parquet")
    assert folder == tmp_path / "r" / "export" / "r-parquet"
    assert {file.stem for file in folder.iterdir()} == set(schema.TABLES)
    for name, table in schema.TABLES.items():
        read = pq.read_table(folder / f"{name}.parquet")
        assert read.schema.equals(table.arrow, check_metadata=False)
        assert read.to_pylist() == run.tables[name].to_pylist()
    unit = pq.read_schema(folder / "steps.parquet").field("start_ns").metadata
    assert unit[b"unit"] == b"ns"


@pytest.mark.parametrize("name", ["ddp_straggler", "ddp_healthy", "hang_skip"])
def test_json_is_as_published(captures: Path, tmp_path: Path, name: str) -> None:
    run = runs.open(captures / "h200" / name)
    written: dict[str, Any] = json.loads(run.export("json", tmp_path / "report.json").read_text())
    described = json.loads(_SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(described)
    jsonschema.validate(written, described)
    assert written["findings"] == run.diagnose().to_dict()["findings"]
    assert [row["rank"] for row in written["summary"]["overlap"]] == ([0, 1, 2, 3] if name != "hang_skip" else [])
    overlap = run.overlap()
    assert [row["comm_ms"] for row in written["summary"]["overlap"]] == overlap["comm_ms"].tolist()


def test_the_description_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    wrong = report(runs.open(tmp_path / "r"))
    wrong["summary"]["overlap"][0]["comm_ms"] = "36 ms"
    with pytest.raises(jsonschema.ValidationError, match="36 ms"):
        jsonschema.validate(wrong, json.loads(_SCHEMA.read_text()))


def test_files_are_the_owners_alone_and_replaced_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    run = runs.open(tmp_path / "r")
    first, again = (write(run, "perfetto") for _ in range(2))
    assert first == again == tmp_path / "r" / "export" / "r.pftrace"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert [file.name for file in first.parent.iterdir()] == ["r.pftrace"]
    assert runs.open(tmp_path / "r").ranks == [0, 1]


def test_an_import_is_written_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.Run(schema.empty_tables(), name="a/b: c")
    monkeypatch.chdir(tmp_path)
    assert write(run, "parquet") == tmp_path / "a-b-c-parquet"


@pytest.mark.parametrize(("form", "path", "message"), [
    ("csv", None, "export format 'csv' is unknown; choose from perfetto, parquet, json, html, figures"),
    ("json", "file/report.json", "can't write '.*report.json': .*; name another path"),
    ("parquet", "file", "can't write '.*file': File exists; name another path"),
])
def test_what_can_not_be_written_is_one_line(tmp_path: Path, form: str, path: str | None, message: str) -> None:
    (tmp_path / "file").write_text("")
    run = runs.Run(schema.empty_tables())
    with pytest.raises(DtscopeError, match=message) as caught:
        write(run, form, None if path is None else tmp_path / path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == ""


def test_html_is_one_file_and_figures_a_folder_that_fetch_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "r", two_ranks(), world_size=2)
    run = runs.open(tmp_path / "r")
    page = write(run, "html", tmp_path / "page.html")
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    folder = write(run, "figures", tmp_path / "figures")
    names = {file.stem for file in folder.glob("*.html")}
    assert {"overlap", "waits", "timeline"} <= names
    for file in (page, *folder.glob("*.html")):
        assert 'src="http' not in file.read_text()
    assert (folder / "plotly.min.js").is_file()


def test_every_format_is_named() -> None:
    assert list(FORMATS) == ["perfetto", "parquet", "json", "html", "figures"]
