# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Folders of several jobs that are opened as one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest_files import BASE, event, steps, trace, write

from dtscope_jupyter.run import open as open_run

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.run import Run

SAID = "Traces of 2 jobs lie here: this is the newest, part1; for another open its folder (part0)."


def opened(folder: Path, threads: tuple[int, int], apart_ns: int = 10**10) -> Run:
    """A folder of two folders, each with a trace of rank 0 by the thread given."""
    for place, thread in enumerate(threads):
        inside = folder / f"part{place}"
        inside.mkdir()
        work = [event("cpu_op", "aten::mm", 100.0 + n * 1000, 300.0, thread) for n in range(3)]
        marked = [each | {"tid": thread} for each in steps(3)]
        write(inside / "rank0.json", trace([*marked, *work], baseTimeNanoseconds=BASE + place * apart_ns))
    return open_run(folder)


def test_several_jobs_are_told(tmp_path: Path) -> None:
    run = opened(tmp_path, (41, 77))
    assert SAID in str(run.diagnose()).splitlines()
    assert f"!! {SAID}" in str(run.report()).splitlines()
    assert run.diagnose().to_dict()["remarks"] == [SAID]


def test_only_the_newest_job_is_opened(tmp_path: Path) -> None:
    run = opened(tmp_path, (41, 77))
    assert set(run.table("spans")["thread"].dropna()) == {77}
    assert len(run.table("steps")) == len(open_run(tmp_path / "part1").table("steps"))
    older = open_run(tmp_path / "part0")
    assert set(older.table("spans")["thread"].dropna()) == {41}
    assert older.diagnose().remarks == ()


def test_several_jobs_of_the_same_time_are_told(tmp_path: Path) -> None:
    assert SAID in str(opened(tmp_path, (41, 77), apart_ns=0).diagnose())


def test_windows_of_one_process_are_one_job(tmp_path: Path) -> None:
    assert opened(tmp_path, (41, 41)).diagnose().remarks == ()
