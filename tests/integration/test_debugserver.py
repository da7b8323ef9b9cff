# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import dtscope_jupyter as dts
from dtscope_jupyter import attaching, debugserver, doctor
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import family

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANK = """
import time, torch, torch.distributed as dist
import torch.distributed.debug as debug
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
server = debug._WorkerServer("::", 0)
for size in (4, 8, 16):
    dist.all_reduce(torch.ones(size))
print("ready", flush=True)
time.sleep(600)
"""

LAUNCHER = f"""
import os, subprocess, sys
for rank in range(2):
    subprocess.Popen([sys.executable, "-c", {RANK!r}], env=os.environ | {{"RANK": str(rank), "WORLD_SIZE": "2"}})
sys.stdin.read()
"""


@pytest.fixture
def pid() -> Iterator[int]:
    """A rank that is not armed and runs torch's worker server, as start_debug_server starts it in every rank."""
    variables = {"RANK": "0", "WORLD_SIZE": "1", "DTRAINSCOPE_ENABLE": ""}
    process = subprocess.Popen([sys.executable, "-c", RANK], env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_rank_is_read_through_it(pid: int, tmp_path: Path) -> None:
    check = next(check for check in doctor.examine(pid) if check.what == "torch.distributed.debug")
    assert check.ok
    assert "dump_traceback" in check.reason
    path = debugserver.take(pid, tmp_path)
    assert "Thread 0x" in (path / "rank-0000" / "stacks-000000.txt").read_text()
    collectives = dts.open(str(path)).table("collectives")
    assert collectives["operation"].tolist() == ["all_reduce"] * 3
    assert {file.stat().st_mode & 0o777 for file in path.rglob("*.*") if file.is_file()} == {0o600}


def test_attach_takes_what_it_tells_now(pid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    attempt = attaching.of_process(pid)
    assert attempt.path.is_relative_to(tmp_path / "dtscope-runs")
    assert attempt.ranks() == [0]


def test_all_ranks_of_a_launcher_are_read(tmp_path: Path) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() + launcher.stdout.readline() == "ready\nready\n"
    members = list(family(launcher.pid))
    try:
        found = dts.open(str(debugserver.take(launcher.pid, tmp_path)))
    finally:
        for member in members:
            os.kill(member.pid, signal.SIGKILL)
        launcher.communicate()
    assert (found.world_size, found.ranks) == (2, [0, 1])
    collectives = found.table("collectives")
    assert {rank: len(rows) for rank, rows in collectives.groupby("rank")} == {0: 3, 1: 3}


def test_process_without_one(tmp_path: Path) -> None:
    with pytest.raises(DtscopeError, match="start_debug_server"):
        debugserver.take(os.getpid(), tmp_path)
    assert list(tmp_path.iterdir()) == []
