# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from analysis_rows import at, collective, step, tables, wait

from dtscope_jupyter import simulate
from dtscope_jupyter.diagnosis import diagnose
from dtscope_jupyter.ingest import stack_files
from dtscope_jupyter.simulate import Fault

if TYPE_CHECKING:
    from pathlib import Path

GROUP = [{"rank": rank, "process_group": "0", "backend": "gloo", "ranks": [0, 1, 2]} for rank in range(3)]


def said(found: dict[str, pa.Table]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(each.kind, each.cause, each.ranks) for each in diagnose(found).findings]


def ended_run(last: dict[int, float | None], **more: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Ten whole collectives of three ranks, then one that lasts so many ms on each rank; None where the rank has none."""
    whole = [(rank, seq) for rank in range(3) for seq in range(10)]
    rows = [collective(rank, seq, 10 * seq, 10 * seq + 2, enqueue_ns=at(10 * seq), state="completed") for rank, seq in whole]
    rows += [
        collective(rank, 10, 100, 100 + lasts, enqueue_ns=at(100), state="completed") for rank, lasts in last.items() if lasts is not None
    ]
    steps = [{"rank": rank, "step": step, "start_ns": at(10 * step), "end_ns": at(10 * step + 9)} for rank in range(3) for step in range(9)]
    return tables(collectives=rows, groups=GROUP, steps=steps, **more)


def test_a_collective_that_ended_by_an_error_after_long_waiting_was_a_hang() -> None:
    assert said(ended_run({0: 7000, 1: 7100, 2: None})) == [("hang", "host_stuck", (2,))]


def test_last_rows_lost_by_a_killed_rank_are_no_hang() -> None:
    assert said(ended_run({0: 2, 1: 2, 2: None})) == []


def test_a_rank_that_died_is_named_although_its_peers_ended_at_once() -> None:
    exits = [{"rank": 2, "kind": "exit", "time_ns": at(150), "value": -9.0, "text": "ended with exit code -9"}]
    assert said(ended_run({0: 30, 1: 30, 2: None}, notes=exits)) == [("hang", "process_died", (2,))]


@pytest.mark.parametrize(("finished", "named"), [(True, False), (False, True)])
def test_a_rank_that_failed_after_a_step_that_it_did_not_sample_is_not_awaited(finished: bool, named: bool) -> None:  # noqa: FBT001
    """Ranks need not record the collectives of the same steps; the others end when rank 2 is gone."""
    exits = [{"rank": 2, "kind": "exit", "time_ns": at(150), "value": 1.0, "text": "ended with exit code 1"}]
    rows = [collective(rank, n, 10 * n, 10 * n + 2, step=n, state="completed") for rank in range(3) for n in range(10 - (rank == 2))]
    steps = [step(rank, n, 10 * n, 10 * n + 9, optimizer_end_ns=at(10 * n + 8)) for rank in range(3) for n in range(10 - (rank == 2))]
    steps += [step(2, 9, 90, 99, optimizer_end_ns=at(98) if finished else None)]
    found = tables(collectives=rows, groups=GROUP, steps=steps, notes=exits)
    assert [one for one in said(found) if one[0] == "hang"] == ([("hang", "process_died", (2,))] if named else [])


@pytest.mark.parametrize(("code", "named"), [(-9.0, True), (-11.0, True), (-15.0, False), (-2.0, False), (0.0, False)])
def test_a_rank_that_a_signal_ended_is_named_although_nothing_was_open(code: float, named: bool) -> None:  # noqa: FBT001
    """As on devices, where the collectives of most steps are not recorded."""
    exits = [{"rank": 2, "kind": "exit", "time_ns": at(150), "value": code, "text": "ended"}]
    steps = [step(rank, n, 10 * n, 10 * n + 9) for rank in range(3) for n in range(4 if rank == 2 else 9)]
    found = tables(steps=steps, groups=GROUP, notes=exits)
    assert [one for one in said(found) if one[0] == "hang"] == ([("hang", "process_died", (2,))] if named else [])


def test_an_exit_at_the_end_of_a_whole_run_is_none() -> None:
    exits = [{"rank": 2, "kind": "exit", "time_ns": at(150), "value": -6.0, "text": "ended with exit code -6"}]
    assert said(ended_run({0: 2, 1: 2, 2: 2}, notes=exits)) == []


def test_gloo_s_last_word_tells_a_mismatch_of_sizes() -> None:
    word = "ended with exit code -6: what(): op.preamble.length <= op.nbytes. 131584 vs 4. Received data size doesn't match expected size."
    exits = [{"rank": 2, "kind": "exit", "time_ns": at(150), "value": -6.0, "text": word}]
    assert said(ended_run({0: 30, 1: 30, 2: None}, notes=exits)) == [("desync", "shape", (2,))]


def test_gradients_that_differ_in_the_torn_last_step_alone_are_no_desync() -> None:
    assert said(simulate.run(4, 12, [Fault("desync", "values", (1,), first=11)])) == []
    assert said(simulate.run(4, 12, [Fault("desync", "values", (1,), first=10)])) == [("desync", "values", (1,))]


def starved(rank: int, cpu: float) -> dict[str, pa.Table]:
    """A run on CPUs in which a rank is late, works `cpu` ms more in each step, and waits for a CPU in the rest of it."""
    found = simulate.run(2, 20, [Fault("straggler", "host_stall", (rank,), 0.6)], device=None)
    steps = found["steps"]
    mine = [one == rank for one in steps["rank"].to_pylist()]
    delay = [30.0 - cpu if own else 0.1 for own in mine]
    place = steps.schema.get_field_index("thread_delay_ms")
    steps = steps.set_column(place, steps.schema.field(place), pa.array(delay, pa.float64()))
    place = steps.schema.get_field_index("thread_cpu_ms")
    used = [value + (cpu if own else 0.0) for value, own in zip(steps["thread_cpu_ms"].to_pylist(), mine, strict=True)]
    return {**found, "steps": steps.set_column(place, steps.schema.field(place), pa.array(used, pa.float64()))}


def test_a_rank_that_waits_for_a_cpu_is_no_stalled_program() -> None:
    (finding,) = diagnose(starved(1, 0.0)).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("straggler", "host_stall", (1,))
    assert "waited" in finding.sentence
    assert "core of its own" in finding.advice


def test_a_rank_that_has_more_work_on_a_busy_cpu_is_late_by_its_work() -> None:
    assert said(starved(1, 10.0)) == [("straggler", "compute", (1,))]


STACKS = """\
Thread 0x00007f25f2dbd6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f2620c03b80 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 865 in _engine_run_backward
  File "/home/me/train.py", line 42 in step
  File "/home/me/train.py", line 77 in main
"""


def test_a_stack_tells_where_the_users_code_stood(tmp_path: Path) -> None:
    file = tmp_path / "stacks-000.txt"
    file.write_text(STACKS)
    (row,) = stack_files.read(file, 3)["host"].to_pylist()
    assert (row["rank"], row["kind"], row["line"], row["detail"]) == (3, "stack", "/home/me/train.py:42", "step")


@pytest.mark.parametrize("text", ["", "no stack at all", "Thread 0x1 (most recent call first):\n", "\x00\xff"])
def test_a_file_without_a_stack_tells_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "stacks-000.txt"
    file.write_text(text)
    assert stack_files.read(file, 0) == {}


def test_rows_of_one_place_that_differ_only_within_a_rank_are_no_desync() -> None:
    rows = [collective(rank, 5, 10, 12, bytes=size, state="completed") for rank in (0, 1) for size in (4, 8)]
    assert [one for one in said(tables(collectives=rows)) if one[0] == "desync"] == []


@pytest.mark.parametrize(
    ("asynchronous", "cause", "said_to_do"), [(True, "one_bucket", "next to nothing"), (False, "blocking_wait", "async_op")]
)
def test_little_sent_at_once_is_not_advised_other_buckets(asynchronous: bool, cause: str, said_to_do: str) -> None:  # noqa: FBT001
    places = [(rank, n, 5 * n) for rank in (0, 1) for n in range(12)]
    seen = {"compute_ms": 4.0, "comm_ms": 1.0, "overlap_ms": 0.0, "exposed_ms": 1.0}
    steps = [step(r, n, t, t + 5, backward_start_ns=at(t + 1), backward_end_ns=at(t + 4), **seen) for r, n, t in places]
    more = {"bytes": 4000, "asynchronous": asynchronous, "state": "completed"}
    called = [collective(r, n, t + 3, t + 4, step=n, **more) for r, n, t in places]
    (finding,) = diagnose(tables(steps=steps, collectives=called, host=[wait(r, n, t + 3, t + 4) for r, n, t in places])).findings
    assert (finding.kind, finding.cause, finding.severity) == ("low_overlap", cause, "info")
    assert said_to_do in finding.advice
    assert "bucket_cap_mb" not in finding.advice
    assert "a step go in " in finding.sentence


def test_a_rank_alone_is_told_that_it_is_and_not_to_record_more_steps() -> None:
    (finding,) = diagnose(tables(steps=[step(0, n, 5 * n, 5 * n + 5) for n in range(12)])).findings
    assert (finding.kind, finding.cause, finding.severity) == ("insufficient_data", "missing_ranks", "info")
    assert finding.sentence == "Only rank 0 was recorded: who waits for whom can't be told."
    assert "-n 2" in finding.advice


@pytest.mark.parametrize(("size", "advised"), [(468e3, "next to nothing"), (20e6, "bucket_cap_mb=10")])
def test_other_buckets_are_advised_where_they_would_be_others(size: float, advised: str) -> None:
    """One bucket of 468 kB stays one whatever the cap."""
    places = [(rank, n, 20 * n) for rank in (0, 1) for n in range(12)]
    seen = {"compute_ms": 12.0, "comm_ms": 8.0, "overlap_ms": 0.0, "exposed_ms": 8.0}
    steps = [step(r, n, t, t + 20, backward_start_ns=at(t + 4), backward_end_ns=at(t + 12), **seen) for r, n, t in places]
    more = {"bytes": size, "asynchronous": True, "state": "completed"}
    called = [collective(r, n, t + 12, t + 20, step=n, **more) for r, n, t in places]
    (finding,) = diagnose(tables(steps=steps, collectives=called, host=[wait(r, n, t + 12, t + 20) for r, n, t in places])).findings
    assert (finding.kind, finding.cause) == ("low_overlap", "one_bucket")
    assert advised in finding.advice


def test_a_run_without_steps_says_so_in_words() -> None:
    (finding,) = diagnose(tables(steps=[{"rank": 0, "step": 0, "start_ns": at(0)}, {"rank": 1, "step": 0, "start_ns": at(0)}])).findings
    assert finding.cause == "missing_steps"
    assert finding.sentence == "No whole step of several ranks was recorded, so there is no verdict."


HUNG = Fault("hang", "host_stuck", (2,), first=5)


def ended_by_us(code: float, later_ms: float) -> dict[str, pa.Table]:
    """A hang whose stacks were saved, and what the stuck rank left as the run was ended after that: a collective and an exit."""
    found = dict(simulate.run(4, 12, [HUNG]))
    caught = max(found["host"]["start_ns"].to_pylist())
    after = caught + round(later_ms * 1e6)
    last = collective(2, 999, None, None, enqueue_ns=after, state="scheduled", process_group="other", group_size=1)
    called = pa.Table.from_pylist([last], found["collectives"].schema)
    exits = [{"rank": 2, "kind": "exit", "time_ns": after, "value": code, "text": "ended"}]
    found["collectives"] = pa.concat_tables([found["collectives"], called])
    found["notes"] = pa.Table.from_pylist(exits, found["notes"].schema)
    return found


@pytest.mark.parametrize("code", [0.0, 1.0, -2.0, -15.0])
@pytest.mark.parametrize("later_ms", [1.0, 3000.0])
def test_a_stuck_host_stays_one_after_the_run_was_ended(code: float, later_ms: float) -> None:
    """The stack caught it alive while its peers waited; how it ended when told to is another matter."""
    assert said(ended_by_us(code, later_ms)) == [("hang", "host_stuck", (2,))]


def test_the_same_hang_gets_the_same_verdict_each_time_and_in_any_order_of_rows() -> None:
    tables = ended_by_us(0.0, 10.0)
    first = diagnose(tables).to_dict()
    for seed in range(3):
        order = np.random.default_rng(seed)
        mixed = {name: table.take(pa.array(order.permutation(len(table)))) for name, table in tables.items()}
        assert diagnose(mixed).to_dict()["findings"] == first["findings"]


def failing(count: int, steps: int = 400) -> dict[str, pa.Table]:
    """A run of two ranks with eight collectives a step, of which so many on rank 1 raised an error in steps 100 to 199."""
    found = dict(simulate.run(2, steps))
    text = "all_reduce of process group 0 raised an error"
    rows = [{"rank": 1, "step": 100 + n, "kind": "warning", "name": "collective_failed", "value": 1.0, "text": text} for n in range(count)]
    return {**found, "notes": pa.Table.from_pylist(rows, found["notes"].schema)}


@pytest.mark.parametrize(("count", "named"), [(0, False), (1, False), (2, True), (20, True)])
def test_collectives_that_fail_more_often_than_one_in_a_thousand(count: int, named: bool) -> None:  # noqa: FBT001
    found = [each for each in diagnose(failing(count)).findings if each.kind == "hang"]
    assert [(each.cause, each.ranks) for each in found] == ([("unknown", (1,))] if named else [])
    assert all(each.evidence["errors"] == count for each in found)


def test_errors_with_which_a_run_ends_are_no_rate() -> None:
    run = failing(0, steps=20)
    row = {"rank": 1, "step": 19, "kind": "warning", "name": "collective_failed", "value": 1.0, "text": "all_reduce raised an error"}
    assert said({**run, "notes": pa.Table.from_pylist([row], run["notes"].schema)}) == []


@pytest.mark.parametrize(("device", "severity"), [(None, "info"), ("NVIDIA H200", "critical")])
def test_too_few_buckets_promise_a_gain_only_on_devices(device: str | None, severity: str) -> None:
    """On CPUs communication takes the cores that compute: what is not hidden there is worth knowing, and no more."""
    (finding,) = diagnose(simulate.run(2, 20, device=device, gradient_bytes=2**33, buckets=2)).findings
    assert (finding.kind, finding.severity) == ("low_overlap", severity)
    assert (finding.cost_ms > 0) == (device is not None)


def _stuck_apart(other: str, kept_bytes: int = 4000, **more: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    """Rank 0 as a Flight Recorder has it, rank 1 as its hooks do, both at one place."""
    kept = {"bytes": kept_bytes, "dtype": "float32", "shape": "[1000]", "state": "completed", "source": "flight_recorder"}
    open_ = {"bytes": 4096, "dtype": "float32", "shape": "[1024]", "state": "scheduled", "source": "host", "operation": other, **more}
    rows = [collective(0, 5, 10, 12, **kept), collective(1, 5, None, None, enqueue_ns=at(10), **open_)]
    return said(tables(collectives=rows, groups=[{"rank": rank, "process_group": "0", "ranks": [0, 1]} for rank in (0, 1)]))


def test_an_open_call_differs_from_what_another_source_saw_of_its_peer() -> None:
    assert ("desync", "shape", (0, 1)) in _stuck_apart("all_reduce")


def test_a_barrier_of_one_rank_alone_is_no_bucket_of_the_others() -> None:
    """Some backends' barrier is an all_reduce of a few bytes, and a Flight Recorder names it so."""
    assert ("desync", "operation", (0, 1)) in _stuck_apart("barrier", bytes=0)
    assert "desync" not in {kind for kind, _, _ in _stuck_apart("barrier", 4, bytes=0)}


def test_nobody_is_said_to_wait_in_a_collective_that_it_is_not_known_to_have_called() -> None:
    """Rank 1's own call was only counted: it may be another one."""
    waits = collective(0, 5, None, None, enqueue_ns=at(10), state="scheduled", operation="barrier", group_size=2)
    groups = [{"rank": rank, "process_group": "0", "ranks": [0, 1], "last_enqueued": 5, "last_completed": 4} for rank in (0, 1)]
    later = [step(rank, 0, 0, 9000) for rank in (0, 1)]
    (finding,) = diagnose(tables(collectives=[waits], groups=groups, steps=later)).findings
    assert finding.sentence.startswith("Rank 0 waits in barrier 5 of process group 0 and it does not end, though all members have called")


def test_two_sources_may_name_other_calls_apart_and_closed_ones() -> None:
    assert "desync" not in {kind for kind, _, _ in _stuck_apart("all_gather")}
    assert "desync" not in {kind for kind, _, _ in _stuck_apart("all_reduce", state="completed")}


@pytest.mark.parametrize(("others", "named"), [([], True), ([1.0], False), ([-9.0], False)])
def test_the_only_rank_that_was_killed_is_named_although_its_rows_are_the_newest(others: list[float], named: bool) -> None:  # noqa: FBT001
    """Its peers were ended before they had written the step in which they waited for it; where others failed too, nobody is told apart."""
    codes = {2: -9.0, **dict(enumerate(others))}
    exits = [{"rank": rank, "kind": "exit", "time_ns": at(150), "value": code, "text": "ended"} for rank, code in codes.items()]
    steps = [step(rank, n, 10 * n, 10 * n + 9) for rank in range(3) for n in range(9 if rank == 2 else 8)]
    found = tables(steps=steps, groups=GROUP, notes=exits)
    assert [one for one in said(found) if one[0] == "hang"] == ([("hang", "process_died", (2,))] if named else [])
