# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The first picture of a job that runs already: it waits for no message, reads no more than it shows, and brings no pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from test_view_live import Seen, status, steps, tables_of, unpack, writer

from dtscope_jupyter import rundir
from dtscope_jupyter.view.pump import Pump
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = 400
ATTACH = """
import os, sys
from dtscope_jupyter import attaching, session, stage
stage.has_widgets = lambda: True  # as in a kernel; there is no page
attaching.attach(sys.argv[1], session.Session())
print(sorted({"pandas", "torch", "plotly"} & set(sys.modules)), flush=True)
os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run directory of one rank."""
    attempt = rundir.create_attempt(tmp_path / "run", {"name": "run", "world_size": 1})
    attempt.rank_path(0).mkdir(mode=0o700)
    rundir.write_json(attempt.rank_path(0) / "rank.json", {"pid": os.getpid(), "host": "elsewhere"})
    return attempt.path


def test_what_is_there_comes_with_the_widget_and_is_not_sent_again(folder: Path) -> None:
    file = writer(folder, 0, "steps")
    file.append(steps(0, 0, 5))
    widget = Seen()
    pump = Pump(folder, widget, status())
    first = tables_of(*unpack(widget.snapshot))
    assert first["steps"]["step"].to_pylist() == [0, 1, 2, 3, 4]
    schemas: dict[int, bytes] = {}
    tables_of(*unpack(widget.snapshot), schemas)
    pump.start()
    file.append(steps(0, 5, 2))
    until(lambda: any("parts" in header for header, _ in widget.messages))
    pump.finish("finished", "")
    sent = [step for message in widget.messages for table in tables_of(*message, schemas).values() for step in table["step"].to_pylist()]
    assert sent == [5, 6]
    assert widget.messages[0][0]["frame"] == 0


def test_a_long_run_is_begun_at_its_end(folder: Path) -> None:
    file = writer(folder, 0, "steps")
    for block in range(BLOCKS):
        file.append(steps(0, 200 * block, 200))
    widget = Seen()
    Pump(folder, widget, status())
    shown = tables_of(*unpack(widget.snapshot))["steps"]["step"].to_pylist()
    assert shown == list(range(shown[0], 200 * BLOCKS))
    assert shown[0] > 0
    assert len(widget.snapshot) < file.bytes_written / 2


def test_nothing_heavy_is_imported_for_it(folder: Path) -> None:
    writer(folder, 0, "steps").append(steps(0, 0, 5))
    done = subprocess.run([sys.executable, "-c", ATTACH, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
