# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that were started without us arm themselves by the script that sys.remote_exec would have them run.

Where that is not to be had (before Python 3.14) the ranks run the same file at a signal instead, in their main thread as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import asking, attaching, remote, rundir
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import Process
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAIN = """
import os, signal, sys, time, torch, torch.distributed as dist
signal.signal(signal.SIGUSR1, lambda *_: exec(open(sys.argv[1]).read(), {}))
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
os.write(1, f"{os.getpid()}\\n".encode())
while True:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.005)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[int]]:
    """Pids of two unarmed ranks that train."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "arm.py").write_text(remote.script(tmp_path / "runs"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DTRAINSCOPE_")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    launcher = subprocess.Popen(
        [*command, str(tmp_path / "train.py"), str(tmp_path / "arm.py")], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    yield [int(launcher.stdout.readline()) for _ in range(2)]
    launcher.terminate()
    launcher.wait()
    launcher.stdout.close()


@pytest.mark.skipif(sys.version_info >= remote.OLDEST, reason="there the next test does it")
def test_unarmed_ranks_are_refused_with_the_reason_and_arm_themselves_by_the_script(job: list[int], tmp_path: Path) -> None:
    ours = ".".join(map(str, sys.version_info[:2]))
    for pid in (job[0], os.getpid()):  # a rank, and the parent of its launcher
        with pytest.raises(
            DtscopeError, match=rf"sys.remote_exec needs Python 3.14 on both sides; the process has {ours}, this one {ours}"
        ):
            attaching.of_process(pid)
    for pid in job:
        os.kill(pid, signal.SIGUSR1)
    until(lambda: len(list(tmp_path.glob("runs/*/rank-*/control.sock"))) == 2)
    (run,) = (tmp_path / "runs").iterdir()
    attempt = rundir.attempts(run)[0]
    status = asking.ask_ranks(attempt, {"command": "status"})
    assert [status[rank]["recording"] for rank in range(2)] == [False, False]
    assert sorted(status[rank]["pid"] for rank in range(2)) == sorted(job)
    assert {Process(pid).rank_folder for pid in job} == {attempt.rank_path(rank) for rank in range(2)}
    assert attaching.of_process(job[1]) == attempt
    asking.ask_ranks(attempt, {"command": "attach"})
    until(lambda: all((attempt.rank_path(rank) / "steps.index").exists() for rank in range(2)))


@pytest.mark.skipif(sys.version_info < remote.OLDEST, reason="sys.remote_exec needs Python 3.14")
def test_unarmed_ranks_are_armed_from_here(job: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert attaching.of_process(job[0]).ranks() == [0, 1]
