# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Helper processes read what one process would, and never outlive it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from dtscope_jupyter import ingest
from dtscope_jupyter.ingest import parallel

if TYPE_CHECKING:
    import pyarrow as pa

GLOO = Path(__file__).parents[1] / "data" / "gloo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(6):
        shutil.copy(GLOO / f"rank{number % 2}.json.gz", tmp_path / f"a{number}.json.gz")
    shutil.copy(GLOO / "fr_rank0.pkl", tmp_path)
    (tmp_path / "b0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    return tmp_path


def _same(one: dict[str, pa.Table], other: dict[str, pa.Table]) -> bool:
    return all(one[name].to_pylist() == other[name].to_pylist() for name in one)


def test_helpers_give_the_same_tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ingest.read([folder])
    monkeypatch.setattr(parallel, "WORTH_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    others = set(psutil.Process().children())
    helped = ingest.read([folder])
    assert _same(alone.tables, helped.tables)
    assert sorted(alone.files) == sorted(helped.files)
    assert set(psutil.Process().children()) <= others


def test_helpers_die_with_a_reason_for_each_of_their_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORTH_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(parallel, "_START", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    found = ingest.read([folder])
    notes = [row["text"] for row in found.tables["notes"].to_pylist() if row["kind"] == "unreadable"]
    assert notes.count("the process that read it ended with status -9") >= 3
    assert found.files


def test_helpers_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from dtscope_jupyter.ingest import files, parallel\n"
        "path = Path(sys.argv[1])\n"
        "os.mkfifo(path / 'never')\n"
        "source = files.Source(path / 'never', files.Kind.KINETO, 1, 1)\n"
        "helper = parallel._Helper.started([source], None)\n"
        "print(helper._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, str(program), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    helper = psutil.Process(int(parent.stdout.readline()))
    assert helper.is_running()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while helper.is_running() and helper.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE


def test_small_input_starts_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process for a few small files"))
    assert ingest.read([folder]).files
