# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Attached to in the midst of training, again and again: only whole steps, under the same number on every rank."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import dtscope_jupyter as dts
from dtscope_jupyter import asking, attaching, rundir, session
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROUNDS = 4
TRAIN = """
import time, torch, torch.distributed as dist
import dtscope_jupyter as dts
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
iteration = 0
while True:
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    dts.log(iteration=iteration)
    iteration += 1
    time.sleep(0.004)
"""
WATCHES = """
import os, pathlib, sys
from dtscope_jupyter import asking, attaching, rundir, session
attaching.attach(sys.argv[1], session.Session())
replies = asking.ask_ranks(rundir.attempts(pathlib.Path(sys.argv[1]))[-1], {"command": "status"})
assert [reply["watchers"] for reply in replies.values()] == [2, 2]
os._exit(0)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """The run directory of two ranks that train, armed but idle."""
    (tmp_path / "train.py").write_text(TRAIN)
    told = {"DTRAINSCOPE_ENABLE": "attach", "DTRAINSCOPE_LOG_DIR": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(tmp_path / "train.py")]
    launcher = subprocess.Popen(command, env=os.environ | told, stderr=subprocess.DEVNULL)
    _until(lambda: len(list(tmp_path.glob("runs/*/rank-*/control.sock"))) == 2)
    yield next((tmp_path / "runs").iterdir())
    launcher.terminate()
    launcher.wait()


def test_only_whole_steps_under_one_number(run: Path) -> None:
    begun = []
    for _ in range(ROUNDS):
        begun.append(time.time_ns())
        _record(run)
    found = dts.open(run)
    steps, notes = found.table("steps"), found.table("notes")
    notes = notes[notes["name"] == "iteration"]
    for row in steps.to_dict("records"):
        assert sum(start <= row["start_ns"] for start in begun) == sum(start <= row["end_ns"] for start in begun) > 0
    numbers = [_iterations(steps, notes, rank) for rank in range(2)]
    both = numbers[0].keys() & numbers[1].keys()
    assert len(both) >= ROUNDS
    assert all(numbers[0][step] == numbers[1][step] for step in both)


def test_ranks_record_until_the_last_watcher_leaves(run: Path) -> None:
    attempt = rundir.attempts(run)[-1]
    first, second = session.Session(), session.Session()
    attaching.attach(str(run), first)
    attaching.attach(str(run), second)
    attaching.detach(first)
    assert _recording(attempt) == [True, True]
    attaching.detach(second)
    assert _recording(attempt) == [False, False]
    attaching.attach(str(run), first)
    subprocess.run([sys.executable, "-c", WATCHES, str(run)], check=True)  # a notebook that dies
    attaching.detach(first)
    assert _recording(attempt) == [False, False]


def test_a_window_that_is_open_ends_with_its_step(run: Path) -> None:
    attempt, current = rundir.attempts(run)[-1], session.Session()
    attaching.attach(str(run), current)
    assert all("profiles its next 100 steps" in line for line in asking.capture(attempt, "profile", None, 100))
    _until(lambda: all(_rows(attempt, rank, disturbed=True) for rank in range(2)))
    attaching.detach(current)
    _until(lambda: all(list(attempt.rank_path(rank).glob("trace-*.json.gz")) for rank in range(2)))
    assert _recording(attempt) == [False, False]
    _record(run)


def _recording(attempt: rundir.Attempt) -> list[bool]:
    return [bool(reply["recording"]) for reply in asking.ask_ranks(attempt, {"command": "status"}).values()]


def _iterations(steps: Any, notes: Any, rank: int) -> dict[int, list[float]]:
    """By step of a rank, what its program counted in it: one, or none where it was left before it said so."""
    own = notes[notes["rank"] == rank]
    found = {step: own[own["step"] == step]["value"].tolist() for step in steps[steps["rank"] == rank]["step"]}
    assert all(len(iterations) <= 1 for iterations in found.values())
    return {step: iterations for step, iterations in found.items() if iterations}


def _record(run: Path) -> None:
    """Attaches, until both ranks have written steps more than before, and detaches."""
    attempt, current = rundir.attempts(run)[-1], session.Session()
    before = [_rows(attempt, rank) for rank in range(2)]
    attaching.attach(str(run), current)
    _until(lambda: all(_rows(attempt, rank) >= before[rank] + 3 for rank in range(2)))
    attaching.detach(current)


def _rows(attempt: rundir.Attempt, rank: int, *, disturbed: bool | None = None) -> int:
    """Steps that the rank has written, or those among them that are, or are not, disturbed."""
    rows = [row for batch in BlockReader(attempt.rank_path(rank), "steps").batches() for row in batch.to_pylist()]
    return sum(disturbed in (None, row["disturbed"]) for row in rows)


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
