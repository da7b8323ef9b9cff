# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The live diagnosis keeps the newest rows of each table, in one piece, however many blocks they came in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import schema, simulate
from dtscope_jupyter.store import BlockReader, BlockWriter
from dtscope_jupyter.view import live_analysis
from dtscope_jupyter.view.live_analysis import LiveAnalysis
from dtscope_jupyter.view.live_tail import Delta

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.store import Block

FAULT = simulate.Fault("straggler", "compute", ranks=(1,), size=0.5, first=5)


def fed(analysis: LiveAnalysis, blocks: dict[str, list[Block]]) -> None:
    """Feeds blocks without a thread, and diagnoses."""
    analysis.feed(Delta(blocks={(name, 0): found for name, found in blocks.items() if found}))
    analysis.run_now()


@pytest.fixture
def quiet() -> LiveAnalysis:
    """One that diagnoses only when told."""
    analysis = LiveAnalysis()
    analysis._ending.set()
    return analysis


@pytest.fixture
def blocks(tmp_path: Path) -> dict[str, list[Block]]:
    """A simulated run with a straggler."""
    return simulated(tmp_path, FAULT)


def simulated(tmp_path: Path, fault: simulate.Fault) -> dict[str, list[Block]]:
    """A row a block as a slow run writes it, by step."""
    made = {}
    for name, table in simulate.run(world_size=2, steps=40, faults=[fault]).items():
        writer = BlockWriter(tmp_path, name)
        arrow = schema.TABLES[name].arrow
        for place in range(len(table)):
            for batch in table.slice(place, 1).cast(arrow).to_batches():
                writer.append(batch)
        writer.close()
        made[name] = [block for block in BlockReader(tmp_path, name).poll() if not block.is_schema]
    return made


def test_rows_that_come_one_by_one_are_diagnosed_like_all_at_once(blocks: dict[str, list[Block]], quiet: LiveAnalysis) -> None:
    at_once = LiveAnalysis()
    at_once._ending.set()
    fed(at_once, blocks)
    for part in range(4):
        fed(quiet, {name: found[part * len(found) // 4 : (part + 1) * len(found) // 4] for name, found in blocks.items()})
    assert quiet.findings == at_once.findings
    assert quiet.findings
    assert quiet.findings[0]["kind"] == "straggler"
    for name, table in quiet._tables.items():
        assert len(table) == len(blocks[name])
        assert all(column.num_chunks <= 1 for column in table.columns)
        assert not quiet._blocks[name]


def test_what_healed_goes_and_counts_again_once_the_run_is_over(tmp_path: Path, quiet: LiveAnalysis) -> None:
    fed(quiet, simulated(tmp_path, replace(FAULT, last=12)))
    assert quiet.findings == []
    quiet.run_now(over=True)
    assert [(one["kind"], one["ranks"], one["steps"]) for one in quiet.findings] == [("straggler", [1], [*range(5, 12)])]


def test_the_oldest_rows_go(blocks: dict[str, list[Block]], quiet: LiveAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(live_analysis._ROWS, "steps", 30)
    for part in range(4):
        fed(quiet, {"steps": blocks["steps"][part * 20 : (part + 1) * 20]})
    newest = [block.batch().column("step")[0].as_py() for block in blocks["steps"][-30:]]
    assert quiet._tables["steps"]["step"].to_pylist() == newest


def test_rows_that_no_diagnosis_has_taken_are_bounded_too(
    blocks: dict[str, list[Block]], quiet: LiveAnalysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(live_analysis._ROWS, "steps", 10)
    for block in blocks["steps"]:
        quiet.feed(Delta(blocks={("steps", 0): [block]}))
    assert len(quiet._blocks["steps"]) == 10
