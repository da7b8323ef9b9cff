# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/straggler.bin: steps, collectives and the longest kernels of the real ddp_straggler capture, as a page gets them."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc

import dtscope_jupyter as dts
from dtscope_jupyter.view.live_pack import of_tables

_LONG_NS = 500_000


def main() -> None:
    """Takes the folder of the capture."""
    run = dts.open(sys.argv[1])
    names = ("steps", "collectives", "clocks", "groups", "host", "notes")
    tables = {name: run.tables[name] for name in names}
    spans = run.tables["spans"]
    long = pc.greater(pc.subtract(spans["end_ns"], spans["start_ns"]), _LONG_NS)
    device = pc.is_in(pc.cast(spans["kind"], "string"), pc.cast(["compute", "comm"], "string"))
    tables["spans"] = spans.filter(pc.and_(long, device))
    for name in ("steps", "collectives", "host", "spans"):
        tables[name] = tables[name].filter(pc.greater_equal(tables[name]["step"], 14))
    findings = [finding.to_dict() for finding in run.diagnose().findings]
    message = of_tables(tables, {"status": {"title": "ddp_straggler", "world_size": 4, "state": "finished", "live": False}, "findings": findings})
    data = message.pack()
    (Path(__file__).parent / "data" / "straggler.bin").write_bytes(data)
    sys.stdout.write(f"{len(data)} bytes\n")


if __name__ == "__main__":
    main()
