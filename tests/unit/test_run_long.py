# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Long runs: a slow job writes a row a block, and a decoded block takes ten times its bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
from analysis_rows import step, write_run

from dtscope_jupyter import reading, schema, store
from dtscope_jupyter import run as runs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_OPENED = """
import json, sys
from pathlib import Path
import pandas, pyarrow.compute
from dtscope_jupyter import run
Path("/proc/self/clear_refs").write_text("5")
def held(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024
before = held("VmRSS")
tables = run.open(sys.argv[1]).tables
print(json.dumps({"rows": len(tables["steps"]), "mib": held("VmHWM") - before}))
"""


def _row_by_row(folder: Path, table: str, rows: list[dict[str, object]]) -> None:
    writer = store.BlockWriter(folder, table)
    for row in rows:
        writer.append(pa.RecordBatch.from_pylist([row], schema.TABLES[table].arrow))
    writer.close()


def test_a_row_a_block_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LOOSE_BLOCKS", 8)
    rows = {rank: [step(rank, n, 100 * n, 100 * n + 90, source=("host", "event", None)[n % 3]) for n in range(150)] for rank in (0, 1)}
    attempt = write_run(tmp_path / "r", {}, world_size=2)
    for rank in (0, 1):
        attempt.rank_path(rank).mkdir()
        _row_by_row(attempt.rank_path(rank), "steps", rows[rank])
    found = runs.open(tmp_path / "r").tables["steps"].to_pylist()
    assert found == pa.Table.from_pylist([*rows[0], *rows[1]], schema.STEPS.arrow).to_pylist()


def test_memory_to_open_a_run_does_not_grow_with_its_blocks(tmp_path: Path) -> None:
    """8,000 rows are 2 MiB; as many decoded blocks took 133."""
    attempt = write_run(tmp_path / "r", {}, world_size=1)
    attempt.rank_path(0).mkdir()
    _row_by_row(attempt.rank_path(0), "steps", [step(0, n, 100 * n, 100 * n + 90) for n in range(8000)])
    told = json.loads(subprocess.run([sys.executable, "-c", _OPENED, str(tmp_path / "r")], check=True, capture_output=True).stdout)
    assert told["rows"] == 8000
    assert told["mib"] < 40
