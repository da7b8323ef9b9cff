# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The notes of a run as a table: scalars, losses, windows, warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from dtscope_jupyter.view.figures.tables import table
from dtscope_jupyter.view.text import UNKNOWN, significant

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

_HEADS = ("s", "rank", "step", "kind", "name", "value", "text")
_WIDTHS = (50, 40, 50, 70, 110, 70, 400)
_MOST = 500


def draw(source: Source, style: Style) -> go.Figure:
    """The last 500, by time; seconds since the first."""
    notes = source.tables["notes"].sort_by([("time_ns", "ascending"), ("rank", "ascending")])
    if not len(notes):
        return style.nothing("Log", "No note was recorded.")
    begin = pc.min(notes["time_ns"]).as_py()
    rows = [_row(note, begin) for note in notes.slice(max(len(notes) - _MOST, 0)).to_pylist()]
    left = f", the last {_MOST} of {len(notes)}" if len(notes) > _MOST else ""
    return table(style, "Log", f"notes by time{left}", source.name, _HEADS, rows, _WIDTHS, None)


def _row(note: dict[str, Any], begin: int | None) -> tuple[str, ...]:
    when = UNKNOWN if note["time_ns"] is None or begin is None else f"{(note['time_ns'] - begin) / 1e9:.2f}"
    rank = str(note["rank"]) if note["rank"] >= 0 else ""
    step = "" if note["step"] is None else str(note["step"])
    value = UNKNOWN if note["value"] is None else significant(note["value"])
    return when, rank, step, note["kind"], note["name"] or "", value, note["text"] or ""
