# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that record themselves and go wrong say afterwards which rank was the first, how and where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dtscope_jupyter import open as open_run
from dtscope_jupyter.view.pump import Pump
from dtscope_jupyter.view.widget import Panels

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.run import Run

TRAIN = """
import os, signal, sys, time
import torch, torch.distributed as dist
if len(sys.argv) > 2:
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(os.environ["RANK"]), world_size=2)
else:
    dist.init_process_group("gloo")
torch.set_num_threads(1)
how, rank = sys.argv[1], dist.get_rank()
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
sgd = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(20 if how == "uneven" and rank == 1 else 30):
    if rank == 1 and step == 15:
        if how == "raise":
            raise ValueError("bad batch 15")
        if how == "kill":
            time.sleep(0.5)  # what it has recorded is on disk then
            os.kill(os.getpid(), signal.SIGKILL)
    net(torch.ones(8, 64)).sum().backward()
    sgd.step()
    sgd.zero_grad()
dist.destroy_process_group()
"""
HOW = ("raise", "kill", "uneven")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All at once. Only one is torchrun's, which ends the victim of a killed rank so soon that it may not come to say so."""
    folder = tmp_path_factory.mktemp("endings")
    (folder / "train.py").write_text(TRAIN)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    started = [_start(folder, "raise", torchrun)]
    started += [_start(folder, how, [], rank, str(folder / f"{how}.store")) for how in HOW[1:] for rank in range(2)]
    said = [job.communicate(timeout=150)[1].decode() for job in started]
    assert [job.returncode for job in started] == [1, 1, -signal.SIGKILL, 1, 0], said
    return {how: open_run(folder / how) for how in HOW}


def _start(folder: Path, how: str, launcher: list[str], rank: int = 0, *more: str) -> subprocess.Popen[bytes]:
    told = {"DTRAINSCOPE_ENABLE": "1", "DTRAINSCOPE_LOG_DIR": str(folder / how), "OMP_NUM_THREADS": "1", "RANK": str(rank)}
    command = [sys.executable, *launcher, str(folder / "train.py"), how, *more]
    return subprocess.Popen(command, env=os.environ | told, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.parametrize(("how", "cause", "words"), [
    ("raise", "process_died", ("Rank 1 raised ValueError: bad batch 15 (", "train.py:15) in step 15")),
    ("kill", "process_died", ("Rank 1 ended without a word (", "rank 0 lost the connection")),
    ("uneven", "never_called", ("Rank 1 ended, without an error, after 20 steps, while rank 0 was in step 20",)),
])  # fmt: skip
def test_the_first_failure_is_named(jobs: dict[str, Run], how: str, cause: str, words: tuple[str, ...]) -> None:
    told: dict[str, Any] = json.loads(json.dumps(jobs[how].report_json()))
    (finding,) = [each for each in told["findings"] if each["kind"] == "hang"]
    assert (finding["cause"], finding["ranks"]) == (cause, [1])
    assert all(part in told["ended"] for part in words), told["ended"]
    assert str(jobs[how].report()).count(told["ended"]) == 1


def test_a_live_view_names_a_rank_that_was_killed(jobs: dict[str, Run]) -> None:
    """As of a job that was attached to; the heartbeats are old by then."""
    path: Path | None = jobs["kill"].path
    assert path is not None
    for rank in (0, 1):
        os.utime(path / f"rank-{rank:04d}" / "rank.json", (1, 1))
    pump = Pump(path, Panels(), {"state": "waiting", "ranks": {}, "backend": None})
    pump.finish("finished", "")
    assert ("process_died", [1]) in [(each["cause"], each["ranks"]) for each in pump._analysis.findings or []]
