# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What the report of a long run takes: a recorded run, repeated block by block with steps, numbers and times that go on.

    python benchmarks/long_report.py RUN TIMES [--out FILE]

RUN is a run directory, e.g. of `%%dtscope profile` with a loop paced as in live_long.py: what matters is that a slow job writes a step
or two a block. Measured in fresh processes: `dtscope report` and `dtscope report --json` of the whole, with imports.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from ingest import memory
from interleaved import write

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.store import BlockReader, BlockWriter

REPORT = """
import contextlib, io, json, sys, time
from dtscope_jupyter.cli import main
with contextlib.redirect_stdout(io.StringIO()) as said:
    assert main(["report", *sys.argv[1:], *{options}]) == 0
print(json.dumps({{"processor_s": time.process_time(), "characters": len(said.getvalue())}}))
"""
ONCE = ("parameters", "groups", "clocks")


def repeated(source: Path, target: Path, times: int) -> dict[str, Any]:
    """Writes the run `times` over; how many steps, rows and blocks it has then."""
    attempt = rundir.attempts(source)[-1]
    grown = rundir.create_attempt(target, attempt.meta)
    found = {rank: _blocks(attempt.rank_path(rank)) for rank in attempt.ranks()}
    of_steps = pa.concat_tables([pa.Table.from_batches(one["steps"]) for one in found.values()])
    calls = [pa.Table.from_batches(one["collectives"]) for one in found.values() if one["collectives"]]
    length = pc.max(of_steps["end_ns"]).as_py() - pc.min(of_steps["start_ns"]).as_py()
    shift = {"step": pc.max(of_steps["step"]).as_py() + 1, "seq": max((pc.max(each["seq"]).as_py() or 0 for each in calls), default=0) + 1}
    rows = blocks = 0
    for rank, tables in found.items():
        folder = grown.rank_path(rank)
        folder.mkdir(mode=0o700)
        shutil.copy(attempt.rank_path(rank) / "rank.json", folder)
        for name, batches in tables.items():
            writer = BlockWriter(folder, name)
            for turn in range(1 if name in ONCE else times):
                for batch in batches:
                    writer.append(_moved(batch, turn * length, {key: turn * value for key, value in shift.items()}))
                    rows, blocks = rows + len(batch), blocks + 1
            writer.close()
    return {"steps": times * shift["step"], "ranks": len(found), "rows": rows, "blocks": blocks}


def _blocks(folder: Path) -> dict[str, list[pa.RecordBatch]]:
    return {name: list(BlockReader(folder, name).batches()) for name in schema.TABLES}


def _moved(batch: pa.RecordBatch, ns: int, numbers: dict[str, int]) -> pa.RecordBatch:
    by = {f.name: ns for f in batch.schema if f.name.endswith("_ns") and not f.name.startswith(("offset", "uncertainty", "monotonic"))}
    by |= {name: number for name, number in numbers.items() if name in batch.schema.names}
    columns = [pc.add(batch.column(f.name), pa.scalar(by[f.name], f.type)) if f.name in by else batch.column(f.name) for f in batch.schema]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def main() -> None:
    """Repeats the run and measures its reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("times", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results: dict[str, Any] = {"run": repeated(arguments.run, Path(scratch) / "long", arguments.times)}
        print(json.dumps(results["run"]), flush=True)
        for name, options in (("text", []), ("json", ["--json"])):
            results[name] = memory(sys.executable, REPORT.format(options=options), Path(scratch) / "long")
            print(f"{name:<6}", "  ".join(f"{key} {value:.5g}" for key, value in results[name].items()), flush=True)
    if arguments.out:
        write(arguments.out, results)


if __name__ == "__main__":
    main()
