# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Summary and findings as JSON: what `dtscope report --json` prints, described by docs/report.schema.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.run import Run


def text(run: Run) -> str:
    """The report as indented JSON."""
    return json.dumps(report(run), indent=1, allow_nan=False) + "\n"


def report(run: Run) -> dict[str, Any]:
    """The diagnosis (format, ranks, steps, step_ms, findings), with `run` and `summary` beside it, as plain JSON values."""
    return run.diagnose().to_dict() | {"run": _run(run), "summary": _summary(run)}


def _run(run: Run) -> dict[str, Any]:
    notes = run.tables["notes"].column("kind").cast("string").value_counts().to_pylist()
    return {
        "name": run.name,
        "path": None if run.path is None else str(run.path),
        "world_size": run.world_size,
        "ranks": run.ranks,
        "attempt": run.attempt.number if run.attempt else 0,
        "rows": {name: len(table) for name, table in run.tables.items()},
        "notes": {str(one["values"]): one["counts"] for one in notes},
    }


def _summary(run: Run) -> dict[str, Any]:
    """Figures by rank and operation; null where they are unknown."""
    waits = run.waits()
    return {
        "overlap": _records(run.overlap()),
        "waits": _records(waits),
        "breakdown": _records(run.breakdown()),
        "bandwidth": _records(run.bandwidth()),
        "clock_uncertainty_ms": float(waits.attrs["uncertainty_ms"]),
        "unpaired": list(waits.attrs["unpaired"]),
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    known = frame.astype(object).where(frame.notna(), None)
    return [{str(name): _value(value) for name, value in row.items()} for row in known.to_dict("records")]


def _value(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
