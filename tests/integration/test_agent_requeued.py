# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A job that Slurm requeues goes on in the run that it began; another job of the same name does not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from dtscope_jupyter import rundir

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
dist.destroy_process_group()
"""


def _runs(tmp_path: Path, **variables: str) -> list[list[int]]:
    """Trains as docs/how-to/slurm.md has it, on one rank; the attempts of each run there is then, in order of their begin."""
    (tmp_path / "train.py").write_text(TRAIN)
    told = {"DTRAINSCOPE_ENABLE": "1", "DTRAINSCOPE_LOG_DIR": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1", **variables}
    rendezvous = ["--nnodes=1", "--nproc-per-node=1", "--rdzv-id=17", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, str(tmp_path / "train.py")]
    done = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return [[attempt.number for attempt in rundir.attempts(run)] for run in sorted((tmp_path / "runs").iterdir())]


def test_a_requeued_job_is_a_new_attempt(tmp_path: Path) -> None:
    assert _runs(tmp_path) == [[0]]
    assert _runs(tmp_path, SLURM_RESTART_COUNT="1") == [[0, 1]]
    assert _runs(tmp_path, SLURM_RESTART_COUNT="0") == [[0, 1], [0]]
