# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Open + overlap + breakdown by both tools in one process that has imported both: what each turn takes beyond where it began.

    python benchmarks/one_process.py FOLDER TURNS     writes a line of JSON as a turn begins and one as it ends

Run by ingest.py, which watches helper processes meanwhile. Before each turn everything that the turns before left is given back
(garbage, the allocators' free pages), and the kernel's account of the peak (VmHWM) begins anew. The order changes with each turn.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd  # noqa: F401 # else the first turn would import it
import pyarrow as pa
import pyarrow.compute
import pyarrow.pandas_compat
from hta.trace_analysis import TraceAnalysis

import dtscope_jupyter as dts
from dtscope_jupyter import ingest, intervals, run  # noqa: F401
from dtscope_jupyter.analysis import breakdown, overlap  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable


def hta(folder: str) -> list[float]:
    """Percentages of overlap and compute by HTA."""
    analysis = TraceAnalysis(trace_dir=folder)
    overlapped = analysis.get_comm_comp_overlap(visualize=False)
    broken_down = analysis.get_temporal_breakdown(visualize=False)
    return [float(v) for v in overlapped["comp_comm_overlap_pctg"]] + [float(v) for v in broken_down["compute_time_pctg"]]


def ours(folder: str) -> list[float]:
    """The same by ours, over all tables, under HTA's convention."""
    opened = dts.open(folder)
    overlapped, broken_down = opened.overlap(convention="hta"), opened.breakdown(convention="hta")
    return [round(float(v), 2) for v in overlapped.overlap_ratio * 100] + [round(float(v), 2) for v in broken_down.compute_pctg]


def settle() -> None:
    """Gives back what nobody uses, and has the peak counted from here."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def held(name: str, file: str = "status") -> float:
    """A line of the kernel's account of this process, MiB."""
    lines = (line.split() for line in Path(f"/proc/self/{file}").read_text(encoding="ascii").splitlines())
    return next(int(line[1]) for line in lines if line[0] == f"{name}:") / 1024


def turn(name: str, tool: Callable[[str], list[float]], folder: str) -> None:
    """One turn of one tool, between two lines."""
    settle()
    resident = held("VmRSS")
    print(json.dumps({"begins": name, "together_mib": held("Pss", "smaps_rollup")}), flush=True)
    begin, before = time.perf_counter(), _processor()
    figures = tool(folder)
    seconds, processor = time.perf_counter() - begin, _processor() - before
    row = {"ends": name, "seconds": seconds, "processor_s": processor, "above_start_mib": held("VmHWM") - resident}
    print(json.dumps({**row, "start_mib": resident, "figures": figures}), flush=True)


def _processor() -> float:
    return time.process_time() + sum(os.times()[2:4])


def main() -> None:
    """Both tools in turn."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    tools = (("ours", ours), ("hta", hta))
    for number in range(int(sys.argv[2])):
        for name, tool in tools if number % 2 == 0 else tools[::-1]:
            turn(name, tool, sys.argv[1])


if __name__ == "__main__":
    main()
