# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The findings as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtscope_jupyter.view.figures.tables import table
from dtscope_jupyter.view.scene.sentences import where
from dtscope_jupyter.view.text import UNKNOWN, duration, several

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

_HEADS = ("severity", "finding", "kind", "ranks", "steps", "cost a step", "confidence", "advice")
_WIDTHS = (64, 250, 100, 70, 80, 70, 84, 250)


def draw(source: Source, style: Style) -> go.Figure:
    """Most costly first."""
    found = source.diagnosis
    if not found.findings:
        return style.nothing("Findings", f"No finding in {found.steps} steps on {len(found.ranks)} ranks.")
    rows = [
        (
            str(f.severity),
            f.sentence,
            f"{f.kind}\n{f.cause}".replace("_", " "),
            several(f.ranks, 4),
            where(f) or UNKNOWN,
            duration(f.cost_ms) if f.cost_ms > 0 else UNKNOWN,
            f"{f.confidence:.2f}",
            f.advice,
        )
        for f in found.findings
    ]
    marks = [style.colors[{"info": "accent"}.get(f.severity, f.severity)] for f in found.findings]
    return table(style, "Findings", f"{len(rows)}, most costly first", source.name, _HEADS, rows, _WIDTHS, marks)
