# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of one old step, found in a run directory and sent to a page that asks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_view_live import tables_of

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.store import BlockWriter
from dtscope_jupyter.view import live_step
from dtscope_jupyter.view.widget import Panels

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 120


def block(table: str, rank: int, steps: list[int | None], **more: Any) -> pa.RecordBatch:
    """One block of a rank's table with these steps."""
    arrow = schema.TABLES[table].arrow
    same: dict[str, Any] = {"rank": rank, "process_group": "0", "operation": "all_reduce", "kind": "gc", "parameter_id": 0} | more
    rows = [{name: value for name, value in same.items() if name in arrow.names} | {"step": step} for step in steps]
    return pa.RecordBatch.from_pylist(rows, arrow)


def write(path: Path, rank: int, table: str, blocks: list[list[int | None]]) -> None:
    folder = rundir.Attempt(path, 0).rank_path(rank)
    folder.mkdir(parents=True, exist_ok=True)
    writer = BlockWriter(folder, table)
    for steps in blocks:
        writer.append(block(table, rank, steps))
    writer.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks with 200 steps, three collectives each, some of them written a block late."""
    for rank in range(2):
        write(tmp_path, rank, "steps", [[step, step + 1] for step in range(0, 200, 2)])
        write(tmp_path, rank, "collectives", [[step, step, *([step - 1] if step else [])] for step in range(201)])
        write(tmp_path, rank, "host", [[None] if step % 3 else [step, None] for step in range(200)])
        write(tmp_path, rank, "gradients", [[step] for step in range(0, 200, 16)])
    return tmp_path


class TestDirectory:
    @pytest.mark.parametrize("step", [0, 1, 77, 198, 199])
    def test_all_rows_of_the_step_are_found(self, run: Path, step: int) -> None:
        found = live_step.of_directory(run, step)
        assert sorted(found["steps"]["rank"].to_pylist()) == [0, 1]
        assert set(found["steps"]["step"].to_pylist()) == {step}
        assert found["collectives"]["step"].to_pylist() == [step] * 6
        assert found["host"]["step"].to_pylist() == ([] if step % 3 else [step, step])
        newest = max(s for s in range(0, 200, 16) if s <= step)
        assert max(found["gradients"]["step"].to_pylist()) == newest

    def test_a_step_that_was_never_made_has_no_rows(self, run: Path) -> None:
        assert {len(table) for name, table in live_step.of_directory(run, 5000).items()} == {0}

    def test_a_damaged_block_hides_only_its_own_steps(self, run: Path) -> None:
        data = rundir.Attempt(run, 0).rank_path(0) / "steps.arrows"
        raw = bytearray(data.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        data.write_bytes(raw)
        found = [live_step.of_directory(run, step)["steps"]["rank"].to_pylist() for step in range(200)]
        assert all(1 in ranks for ranks in found)
        assert 1 <= sum(0 not in ranks for ranks in found) <= 2

    def test_a_folder_without_files_has_no_rows(self, tmp_path: Path) -> None:
        rundir.Attempt(tmp_path, 0).rank_path(0).mkdir(parents=True)
        assert len(live_step.of_directory(tmp_path, 0)["steps"]) == 0

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.integers(1, 5), min_size=1, max_size=60), st.data())
    def test_blocks_of_any_size_are_searched(self, tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject) -> None:
        path = tmp_path_factory.mktemp("run")
        blocks: list[list[int | None]] = []
        begin = 0
        for size in sizes:
            blocks.append(list(range(begin, begin + size)))
            begin += size
        write(path, 0, "steps", blocks)
        step = data.draw(st.integers(0, begin - 1))
        assert live_step.of_directory(path, step)["steps"]["step"].to_pylist() == [step]


class Page(Panels):
    """Panels that hand on what they sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        self.came = threading.Semaphore(0)
        super().__init__(world_size=2)

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.sent.append((content, [bytes(buffer) for buffer in buffers or []]))
        self.came.release()


class TestAnswers:
    def test_a_page_that_asks_gets_the_rows(self, run: Path) -> None:
        page = Page()
        live_step.Answers(page, lambda step: live_step.of_directory(run, step))
        for step in (3, 150):
            page._handle_custom_msg({"kind": "step", "step": step}, [])
            assert page.came.acquire(timeout=WAIT_S)
            content, buffers = page.sent[-1]
            assert (content["kind"], content["step"]) == ("step", step)
            found = tables_of(content, buffers)
            assert found["collectives"]["step"].to_pylist() == [step] * 6

    def test_what_is_no_question_is_left_alone(self, run: Path) -> None:
        page = Page()
        live_step.Answers(page, lambda step: live_step.of_directory(run, step))
        for content in ({"kind": "step"}, {"kind": "step", "step": "3"}, {"kind": "ack", "frame": 1}):
            page._handle_custom_msg(content, [])
        page._handle_custom_msg({"kind": "step", "step": 4}, [])
        assert page.came.acquire(timeout=WAIT_S)
        assert [content["step"] for content, _ in page.sent] == [4]

    def test_rows_of_a_run_in_memory_are_those_of_its_files(self, run: Path) -> None:
        import dtscope_jupyter as dts

        tables = dts.open(run).tables
        for step in (0, 77):
            memory, files = live_step.of_tables(tables, step), live_step.of_directory(run, step)
            for name in ("steps", "host"):
                assert memory[name]["rank"].to_pylist() == files[name]["rank"].to_pylist()
