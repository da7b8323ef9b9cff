# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The readers against real traces and dumps, whose exact answers are known."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dtscope_jupyter import ingest, intervals, schema

if TYPE_CHECKING:
    from pathlib import Path

H200 = ("ddp_healthy", "ddp_straggler", "ddp_slow_loader", "ddp_no_p2p", "fsdp_healthy", "ddp_small_buckets", "ddp_one_bucket")
HTA = ("sampled_pair", "nccl_data", "trace_diff_test")


def _covered(spans: pa.Table, rank: int, kind: str) -> intervals.Set:
    chosen = spans.filter(pc.and_(pc.equal(spans["rank"], rank), pc.equal(spans["kind"].cast(pa.utf8()), kind)))
    return intervals.union(chosen["start_ns"].to_numpy(), chosen["end_ns"].to_numpy())


def _figures(spans: pa.Table, rank: int) -> dict[str, float]:
    comm, compute = _covered(spans, rank, "comm"), _covered(spans, rank, "compute")
    both, whole = intervals.total(intervals.intersection(comm, compute)), intervals.total(comm)
    return {
        "comm_ms": whole / 1e6,
        "compute_ms": intervals.total(compute) / 1e6,
        "overlap_ms": both / 1e6,
        "exposed_ms": intervals.total(intervals.difference(comm, compute)) / 1e6,
        "overlap_ratio": both / whole,
    }


def _expected(captures: Path, group: str, name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((captures / group / "expected.json").read_text())[name]
    return answers


@pytest.mark.parametrize(("group", "name"), [*(("h200", n) for n in H200), *(("hta", n) for n in HTA)])
def test_overlap_of_every_kernel_is_exact(captures: Path, group: str, name: str) -> None:
    spans = ingest.read([captures / group / name]).tables["spans"]
    expected = _expected(captures, group, name)["ranks"]
    assert {str(rank) for rank in pc.unique(spans["rank"]).to_pylist()} == set(expected)
    for rank, figures in expected.items():
        assert _figures(spans, int(rank)) == pytest.approx({k: figures[k] for k in _figures(spans, int(rank))}, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", H200)
def test_steps_add_up_to_the_whole_where_each_kernel_was_launched_in_one(captures: Path, name: str) -> None:
    tables = ingest.read([captures / "h200" / name]).tables
    expected = _expected(captures, "h200", name)["ranks"]
    step = tables["steps"].to_pandas()
    first = step.step.min()
    assert step.groupby("rank")["step"].apply(list).tolist() == [[first, first + 1, first + 2]] * 4
    assert (step.overlap_ms + step.exposed_ms).to_numpy() == pytest.approx(step.comm_ms.to_numpy())
    for rank, figures in expected.items():
        mine = step[step["rank"] == int(rank)]
        assert mine.comm_ms.sum() == pytest.approx(figures["comm_ms"], rel=0.01)
    assert (step.backward_start_ns > step.start_ns).all()
    assert (step.backward_end_ns < step.optimizer_end_ns).all()
    assert (step.optimizer_end_ns < step.end_ns).all()


@pytest.mark.parametrize("name", H200)
def test_waits_paired_by_order_are_exact(captures: Path, name: str) -> None:
    tables = ingest.read(sorted((captures / "h200" / name).glob("rank*.json.gz"))).tables
    frame = tables["collectives"].to_pandas().sort_values(["rank", "start_ns"])
    starts = np.stack([part.start_ns.to_numpy() for _, part in frame.groupby("rank")])
    ends = np.stack([part.end_ns.to_numpy() for _, part in frame.groupby("rank")])
    expected = _expected(captures, "h200", name)
    waits = (starts.max(axis=0) - starts).sum(axis=1) / 1e6
    assert waits.tolist() == pytest.approx([expected["wait_ms"][str(r)] for r in range(4)], rel=1e-9)
    assert (ends - starts).min(axis=0).sum() / 1e6 == pytest.approx(expected["transfer_ms"], rel=1e-9)


@pytest.mark.parametrize("name", ["ddp_healthy", "fsdp_healthy", "ddp_small_buckets", "ddp_one_bucket"])
def test_traces_and_dumps_of_the_same_collectives_are_one_run(captures: Path, name: str) -> None:
    folder = captures / "h200" / name
    dumps = ingest.read(sorted(folder.glob("fr_*.pkl"))).tables["collectives"]
    traces = ingest.read(sorted(folder.glob("rank*.json.gz"))).tables["collectives"]
    both = ingest.read([folder]).tables["collectives"]
    assert len(both) == len(dumps)
    frame = both.to_pandas().sort_values(["rank", "seq"])
    assert (frame.source == "profiler").sum() == len(traces)
    for _, mine in frame.groupby("rank"):
        assert mine.seq.tolist() == list(range(1, len(mine) + 1))
        order = mine[mine.source == "profiler"].start_ns.to_numpy()
        assert (np.diff(order) > 0).all(), "numbers given by time go the way of the kernels"
    seen = frame[frame.source == "profiler"]
    assert seen["shape"].notna().all()
    assert (
        seen.bytes.tolist() == dumps.to_pandas().set_index(["rank", "seq"]).bytes.loc[[*zip(seen["rank"], seen.seq, strict=True)]].tolist()
    )


def test_a_folder_of_anything_becomes_tables_that_conform(captures: Path) -> None:
    found = ingest.read([captures / "h200" / "ddp_healthy", captures / "h200" / "host"])
    for name, table in schema.TABLES.items():
        got = found.tables[name]
        got.validate(full=True)
        assert got.column_names == table.arrow.names
        for field in table.arrow:
            kind = got.schema.field(field.name).type
            assert kind == field.type or (pa.types.is_dictionary(kind) and kind.value_type == field.type)
            assert field.nullable or got[field.name].null_count == 0
    assert found.world_size == 4
    assert found.topology is not None
    unused = found.tables["notes"].to_pandas().set_index("name").text
    assert sorted(unused.index) == ["nvidia_smi_samples.csv", *(f"times_rank{r}.json" for r in range(4))]
    assert "taken as the device of rank i" in unused["nvidia_smi_samples.csv"]
    assert len(found.tables["devices"]) == 341 * 4 + 4


def test_the_same_things_several_times_count_once(captures: Path, tmp_path: Path) -> None:
    folder = captures / "h200" / "ddp_healthy"
    plain = ingest.read([folder]).tables
    again = tmp_path / "again"
    again.mkdir()
    (again / "rank0_plain.json").write_bytes(gzip.decompress((folder / "rank0.json.gz").read_bytes()))
    for name in ("nccl_trace_rank_2", "_dump_2", "flight_recorder-rank2-4.pkl"):
        (again / name).write_bytes((folder / "fr_rank2.pkl").read_bytes())
    found = ingest.read([folder, again, captures / "h200" / "host", folder / "rank1.json.gz", folder]).tables
    for name in ("spans", "steps", "collectives", "groups", "host"):
        assert len(found[name]) == len(plain[name]), name
    columns = ["rank", "seq", "operation", "bytes", "source", "start_ns", "end_ns"]
    order = [("rank", "ascending"), ("seq", "ascending")]
    ours, theirs = (tables["collectives"].select(columns).sort_by(order).to_pylist() for tables in (found, plain))
    assert ours == theirs
    left = [(row["rank"], row["text"]) for row in found["notes"].to_pylist() if "left out" in row["text"]]
    assert len(left) == 1
    assert left[0][0] == 0
    assert "of rank 0 and of the same time as rank0" in left[0][1]


def test_a_hang_shows_in_states_and_progress(captures: Path) -> None:
    tables = ingest.read([captures / "h200" / "hang_skip"]).tables
    frame = tables["collectives"].to_pandas()
    pending = frame[frame.state != "completed"].groupby("rank").seq.min().to_dict()
    assert pending == {0: 78, 1: 78, 2: 78}
    progress = tables["groups"].to_pandas().set_index("rank")
    assert progress.last_enqueued.to_dict() == {0: 91, 1: 91, 2: 91, 3: 77}
    assert progress.last_completed.to_dict() == dict.fromkeys(range(4), 77)
    assert frame[["start_ns", "end_ns"]].isna().all(axis=None)
    assert frame[frame.state == "completed"].duration_ms.notna().all()


@pytest.mark.parametrize(("name", "host_stuck", "device_stuck"), [("lock_gil_1st", {9, 14}, set()), ("gpu_error_1st", set(), {12, 14})])
def test_dumps_without_timing_tell_who_is_stuck(captures: Path, name: str, host_stuck: set[int], device_stuck: set[int]) -> None:
    """The two rules of facts: nothing pending in a group where peers are; the lowest pending number of a group."""
    tables = ingest.read([captures / "nvrx_fr" / name]).tables
    groups = tables["groups"].to_pandas()
    assert set(groups["rank"]) == set(range(16)), "a rank whose dump has no entry is there all the same"
    frame = tables["collectives"].to_pandas()
    pending = frame[(frame.state != "completed") & ~frame.operation.isin(["send", "recv"])]
    first = pending.groupby(["process_group", "rank"]).seq.min()
    behind: set[int] = set()
    absent: set[int] = set()
    for group in first.index.unique("process_group"):
        mine = first[group]
        absent |= {*groups[groups.process_group == group].ranks.iloc[0]} - {*mine.index}
        behind |= {*mine[mine < mine.max()].index} - {*mine[mine > mine.min()].index}
    assert (absent if host_stuck else behind) == (host_stuck or device_stuck)


def test_progress_of_groups_is_told_by_id_and_name(captures: Path) -> None:
    tables = ingest.read([captures / "nvrx_fr" / "lock_gil_1st" / "_dump_0"]).tables
    frame, groups = tables["collectives"].to_pandas(), tables["groups"].to_pandas().set_index("process_group")
    last = frame[~frame.operation.isin(["send", "recv"])].groupby("process_group").seq.max()
    assert len(last) == 3
    assert groups.last_enqueued[last.index].to_dict() == last.to_dict()
    assert groups.last_enqueued.notna().all()


def test_a_gloo_trace_has_its_collectives_and_groups(captures: Path) -> None:
    found = ingest.read([captures / "hta" / "cpu_only"])
    frame = found.tables["collectives"].to_pandas()
    assert found.world_size == 300
    assert (len(frame), set(frame.operation), set(frame["rank"])) == (10, {"all_reduce"}, {34})
    assert frame.bytes.value_counts().to_dict() == {321271 * 4: 5, 8329644: 5}
    assert len(found.tables["groups"]) == 11


def test_traces_without_rank_get_the_free_ones(captures: Path) -> None:
    found = ingest.read([captures / "hta" / "malformed"])
    notes = found.tables["notes"].to_pandas()
    assert sorted(pc.unique(found.tables["spans"]["rank"]).to_pylist()) == [0, 1, 2]
    assert all(re.search(r"tells the rank: taken as rank [12]$", text) for text in notes.text)
    assert len(notes) == 2


def test_the_sampled_pair_gets_operations_from_the_host(captures: Path) -> None:
    frame = ingest.read([captures / "hta" / "sampled_pair"]).tables["collectives"].to_pandas()
    assert set(frame.operation) == {"all_to_all", "all_reduce", "all_gather"}
    reduced = frame[frame.operation == "all_reduce"]
    assert set(reduced.dtype) == {"float32"}
    assert reduced.enqueue_ns.notna().all()
