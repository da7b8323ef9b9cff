# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a program on real ranks that record themselves, and reads what they recorded."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from ranks import Ranks

PRELUDE = """
import os, time, pathlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from dtscope_jupyter import agent
rank, W = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
armed = None
if {folder!r}:
    _folder = pathlib.Path({folder!r}) / f"rank-{{rank:04d}}"
    _folder.mkdir(mode=0o700, parents=True)
    armed = agent.arm(agent.Config(folder=_folder, rank=rank, world_size=W, local_rank=rank, **{config!r}))
dist.init_process_group("gloo")
torch.manual_seed(7)
"""
EPILOGUE = """
if armed:
    armed.finish()
dist.destroy_process_group()
"""


@dataclass
class Recorded:
    """The value that each rank left, and the tables of all."""

    values: list[Any]
    folder: Path
    cache: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> Any:
        if name not in self.cache:
            batches = [batch for path in sorted(self.folder.glob("rank-*")) for batch in BlockReader(path, name).batches()]
            table = pa.Table.from_batches(batches, schema.TABLES[name].arrow).to_pandas()
            if name == "collectives":
                table = table.drop_duplicates(["rank", "process_group", "seq", "enqueue_ns"], keep="last")
            self.cache[name] = table
        return self.cache[name]

    def of(self, name: str, rank: int) -> Any:
        table = self.table(name)
        return table[table["rank"] == rank].reset_index(drop=True)


def run(ranks: Ranks, source: str, world_size: int = 2, *, folder: Path | None, pull: str = "value", **config: Any) -> Recorded:
    """`folder` of None runs the same without us."""
    program = PRELUDE.format(folder=str(folder) if folder else "", config=config) + textwrap.dedent(source) + EPILOGUE
    return Recorded(ranks.value(program, pull, world_size), folder or Path())
