# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of two hosts whose clocks differ: how sure that is stands beside every number that crosses hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis_rows import at, tables, two_ranks

from dtscope_jupyter.run import Run
from dtscope_jupyter.view.palette import palette
from dtscope_jupyter.view.picture.canvas import Canvas
from dtscope_jupyter.view.picture.compose import panels
from dtscope_jupyter.view.scene.build import scene

if TYPE_CHECKING:
    import pyarrow as pa


def _hosts(*, apart_ns: int) -> dict[str, pa.Table]:
    """Rank 1 on another host, its clock ahead by 3 ms and `apart_ns` more or less."""
    rows = two_ranks(12)
    for i, row in enumerate(rows["collectives"]):
        shift = 3_000_000 + (apart_ns if i % 2 else -apart_ns) if row["rank"] else 0
        row.update(start_ns=row["start_ns"] + shift, end_ns=row["end_ns"] + shift)
    clocks = {"time_ns": at(0), "monotonic_offset_ns": 0}
    return tables(**rows, clocks=[{"rank": rank, "host": f"h{rank}", "boot_id": f"b{rank}", **clocks} for rank in range(2)])


def test_it_stands_beside_waits_timeline_and_report() -> None:
    run = Run(_hosts(apart_ns=40_000), name="two")
    assert (run.waits()["uncertainty_ms"] > 0.9).all()
    assert (run.waits("collective")["uncertainty_ms"] > 0.03).all()
    assert "clocks ±40.0 µs between hosts" in str(run.report())
    assert "Clocks of the hosts: ±40.0 µs a collective." in run.figure("waits").layout.annotations[0].text
    assert "clocks ±40.0 µs" in run.figure("timeline").layout.title.text
    shown = panels(scene(run.tables, None), Canvas(1000, 1, palette(), 1), "two", "")
    texts = [str(getattr(panel, name, "")) for row in shown for panel in row for name in ("about", "caption", "where")]
    assert sum("±40.0 µs" in text for text in texts) == 3


def test_a_wait_that_changed_by_less_is_not_clear() -> None:
    first, second = (Run(_hosts(apart_ns=apart), name="two") for apart in (400_000, 410_000))
    table = first.compare(second).table().set_index("figure")
    assert not table["clear"].to_dict()["wait"]


def test_ranks_of_one_host_say_nothing_of_clocks() -> None:
    run = Run(tables(**two_ranks(12)), name="one")
    assert "±" not in str(run.report())
    assert "±" not in run.figure("waits").layout.annotations[0].text
