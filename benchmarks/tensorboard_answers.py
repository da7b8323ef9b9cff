# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What the TensorBoard plugin says of traces: `python benchmarks/tensorboard_answers.py FOLDER...` prints JSON.

Needs torch-tb-profiler 0.4.3 in an environment of its own (it asks for pandas below 2.3 and numpy below 2). `overlap` is of traces as torch
wrote them when the plugin was made: without the device's own annotations, and with the call of a collective bearing the External id of
its kernel; without that the plugin takes NCCL's kernels for computation. `waits` is of the traces as they are.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData  # type: ignore[import-not-found]
from torch_tb_profiler.profiler.loader import RunLoader  # type: ignore[import-not-found]


def _events(path: Path) -> dict[str, Any]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        trace: dict[str, Any] = json.load(file)
    return trace


def _as_then(trace: dict[str, Any]) -> dict[str, Any]:
    """Without device annotations, calls of collectives joined with their kernels."""
    events = [event for event in trace["traceEvents"] if event.get("cat") != "gpu_user_annotation"]
    kernels = {event["args"]["External id"] for event in events if event.get("cat") == "kernel" and "nccl" in event["name"].lower()}
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"].startswith("nccl:"):
            kernel = event["args"]["External id"] - 1
            assert kernel in kernels, f"a call of {event['name']} without a kernel"
            event["args"]["External id"] = kernel
    return trace | {"traceEvents": events}


def _view(traces: list[tuple[str, dict[str, Any]]]) -> Any:
    """The plugin's distributed view of traces by name; None where it has none, as for ranks with unequal numbers of kernels."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, trace in traces:
            path = Path(folder) / f"{name}.pt.trace.json"
            path.write_text(json.dumps(trace), encoding="utf-8")
            found.append(DistributedRunProfileData(RunProfileData.parse(name, None, str(path), folder)))
    loader = RunLoader.__new__(RunLoader)
    loader.run_name = "answers"
    return loader._process_distributed_profiles(found, None)  # noqa: SLF001


def answers(folder: Path) -> dict[str, Any]:
    """Of each step and trace: the split and the waits, in us."""
    files = sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")) and not path.name.startswith("times_"))
    traces = [(path.name.split(".")[0], _events(path)) for path in files]
    waits, split = _view(traces), _view([(name, _as_then(trace)) for name, trace in traces])
    return {"overlap": _steps(split and split.steps_to_overlap["data"]), "waits": _steps(waits and waits.steps_to_wait["data"])}


def _steps(found: dict[str, Any] | None) -> dict[str, Any]:
    """Of each step and trace, rounded to ns."""
    steps = {step: each for step, each in (found or {}).items() if step != "all"}
    return {step: {name: [round(value, 3) for value in values] for name, values in each.items()} for step, each in steps.items()}


if __name__ == "__main__":
    json.dump({Path(folder).name: answers(Path(folder)) for folder in sys.argv[1:]}, sys.stdout, indent=1)
