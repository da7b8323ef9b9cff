# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What the hooks keep is bounded, and what they leave out they count."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.agent.collector import Collector
from dtscope_jupyter.agent.config import Config
from dtscope_jupyter.agent.core import Agent
from dtscope_jupyter.agent.cost import Cost
from dtscope_jupyter.agent.counted import Backward, Counted
from dtscope_jupyter.agent.faults import Faults
from dtscope_jupyter.agent.host_wait import HostWait
from dtscope_jupyter.agent.recorder import Recorder
from dtscope_jupyter.agent.works import MOST, PATIENCE_NS, Works
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from pathlib import Path


def _operation(enqueue: int) -> Any:
    return SimpleNamespace(enqueue=enqueue)


def test_works_that_nobody_waits_for_are_forgotten() -> None:
    works, kept = Works(), [object() for _ in range(2 * MOST)]
    for number, work in enumerate(kept):
        works.add(work, _operation(number))
    assert len(works) == MOST
    assert works.pop(kept[0]) is None
    assert works.pop(kept[-1]).enqueue == 2 * MOST - 1  # type: ignore[union-attr]


def test_old_works_are_forgotten() -> None:
    works, first, second = Works(), object(), object()
    works.add(first, _operation(1))
    works.add(second, _operation(PATIENCE_NS + 2))
    assert works.pop(first) is None
    assert len(works) == 1


def test_buckets_that_a_host_has_waited_for_are_not_in_flight() -> None:
    group: Any = SimpleNamespace(name="g", size=2)
    for over, expected in ((False, 1), (True, 0)):
        counted = Counted()
        counted.backwards.append(Backward(3, group, [(64, None, (16,))], lambda: 8, 7, 1000))
        if over:
            counted.over()
        assert len(counted.overdue(10_000, 1000)) == expected
        counted.close(3, waited=True)
        assert counted.closed == {3: True}


def test_a_wait_is_the_time_without_the_cpu() -> None:
    wait = HostWait(SimpleNamespace(step=5))  # type: ignore[arg-type]
    wait.backward_ended()
    assert wait.resolve() == []
    begin = time.perf_counter_ns()
    wait.last_gradient()
    time.sleep(0.05)
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    wait.backward_ended()
    took = time.perf_counter_ns() - begin
    ((step, start, end),) = wait.resolve()
    assert step == wait.step == 5
    assert start >= begin
    assert 50e6 <= end - start <= took - 50e6


def test_a_block_that_is_larger_than_what_is_left_is_not_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 100_000)
    for step in range(20_000):
        recorder.add("host", (step, "gc", 1, 2, None, "generation 2", None))
    recorder.flush()
    assert recorder.bytes_written == 0
    recorder.add("host", (0, "gc", 1, 2, None, "generation 2", None))
    recorder.close()
    assert 0 < recorder.bytes_written < 100_000
    notes = [row for batch in BlockReader(tmp_path, "notes").batches() for row in batch.to_pylist()]
    assert [(note["kind"], note["name"], note["value"]) for note in notes] == [("thinned", "host", 20_000.0)]


def test_a_source_that_fails_is_asked_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 10**6)
    asked = []

    def broken(_final: bool) -> None:  # noqa: FBT001
        asked.append(1)
        raise ZeroDivisionError("of a collector")

    recorder.add_source(broken)
    recorder.add_source(lambda _final: recorder.add("host", (0, "gc", 1, 2, None, "generation 2", None)))
    for _ in range(3):
        recorder.flush()
    recorder.close()
    assert len(asked) == 1
    assert sum(batch.num_rows for batch in BlockReader(tmp_path, "host").batches()) == 4
    notes = [row for batch in BlockReader(tmp_path, "notes").batches() for row in batch.to_pylist()]
    assert [(note["kind"], note["text"]) for note in notes] == [("warning", "ZeroDivisionError: of a collector")]


class _Odd(Collector):
    name = "odd"

    def drain(self, final: bool) -> None:  # noqa: FBT001
        raise ZeroDivisionError(final)


def test_a_collector_whose_rows_can_t_be_made_goes_off(tmp_path: Path) -> None:
    folder = tmp_path / "rank-0000"
    folder.mkdir()
    agent = Agent(Config(folder=folder, rank=0, world_size=1, local_rank=0))
    agent.collectors["odd"] = odd = _Odd(agent)
    agent.drains.append(odd.drain)
    agent.start()
    agent.recorder.flush()
    assert not odd.on
    agent.finish()
    notes = [row for batch in BlockReader(folder, "notes").batches() for row in batch.to_pylist()]
    assert [(note["name"], note["text"]) for note in notes] == [("odd", "switched itself off: ZeroDivisionError: False")]


def test_a_rehearsed_straggler_is_late_once_a_step(tmp_path: Path) -> None:
    folder = tmp_path / "rank-0001"
    folder.mkdir()
    agent = Agent(Config(folder=folder, rank=1, world_size=2, local_rank=1))
    faults = Faults(agent, [{"fault": "straggler", "ms": 300, "step": 0}])
    took = []
    for step in (0, 0, 0, 1):
        agent.progress.step = step
        begin = time.perf_counter()
        faults.before_backward()
        took.append(time.perf_counter() - begin)
    agent.finish()
    assert [seconds >= 0.3 for seconds in took] == [True, False, False, True]


def test_on_a_cpu_probes_run_in_steps_that_are_sampled(tmp_path: Path) -> None:
    cost = Cost(Recorder(tmp_path, 0, 10**6), 0.01)
    closely, checked = [], []
    for step in range(160):
        if cost.sampled:
            closely.append(step)
            began = cost.look_began()
            until = time.thread_time_ns() + 200_000
            while time.thread_time_ns() < until:
                pass
            cost.looked(began)
        if cost.due("local_check"):
            checked.append(step)
            cost.spent("local_check", 10**9)
        cost.hook(cost.began())
        cost.step_closed()
    assert closely[-6:] == [*range(64, 160, 16)]
    assert set(checked[-3:]) <= set(closely)
    assert cost.ratio > 0
