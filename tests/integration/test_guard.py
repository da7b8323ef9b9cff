# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A test run that is killed leaves nothing behind, and neither does one that forgets a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import guard

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
LEAVES = """
import subprocess, sys

def test_leaves():
    for session in (False, True):
        child = subprocess.Popen([sys.executable, "-c", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"],
                                 start_new_session=session)
    print("started", flush=True)
    sys.stdin.readline()
"""
PROCESSES = 4
PYTEST = ("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider")


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM, None])
def test_what_tests_started_ends_with_them(tmp_path: Path, ends: signal.Signals | None) -> None:
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    mark = f"{os.getpid()}-{ends}"
    (tmp_path / "conftest.py").write_text(f"from tests import guard\nguard.begin({mark!r})\n")
    command, pipe = [sys.executable, *PYTEST, str(tmp_path)], subprocess.PIPE
    session = subprocess.Popen(command, cwd=ROOT, env=_unmarked(), stdin=pipe, stdout=pipe, text=True)
    assert session.stdin is not None
    assert session.stdout is not None
    assert any("started" in line for line in session.stdout)
    _until(lambda: len(guard.marked(mark)) == PROCESSES)
    if ends:
        session.send_signal(ends)
    session.stdin.close()
    session.stdout.read()
    session.wait()
    session.stdout.close()
    _until(lambda: not guard.marked(mark))


def _unmarked() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != guard.MARK}


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
