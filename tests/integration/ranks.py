# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Starts programs on real ranks, one warm process for the tests of a module."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtscope_jupyter.launch import Cell, Job, Options, Program, Source, Warm, start
from tests.waiting import WAIT_S

CELL = "/tmp/ipykernel_1/1.py"


@dataclass
class Ranks:
    """A warm process and a folder for logs."""

    warm: Warm
    folder: Path
    count: int = 0

    def begin(
        self, source: str, world_size: int = 2, *, pushed: bytes | None = None, pulled: dict[str, bool] | None = None, **options: Any
    ) -> Job:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        world = options.pop("world", None)
        text = textwrap.dedent(source)
        logs = tuple(str(folder / f"{rank}.txt") for rank in range(world_size))
        asked = Options(logs, (None,) * world_size, "test", **options)
        return start(Program(Cell(text, CELL), pushed, pulled or {}, {CELL: Source(text, "Cell In[7]")}), asked, self.warm, world)

    def run(self, source: str, world_size: int = 2, **options: Any) -> Job:
        job = self.begin(source, world_size, **options)
        assert job.wait(WAIT_S)
        return job

    def value(self, source: str, name: str, world_size: int = 2, **options: Any) -> list[Any]:
        job = self.run(source, world_size, pulled={name: True}, **options)
        assert job.failure is None, job.failure
        found: list[Any] = job.results()[name]
        return found

    def log(self, job: Job, rank: int) -> str:
        path = Path(job.options.logs[rank])
        return path.read_text() if path.exists() else ""
