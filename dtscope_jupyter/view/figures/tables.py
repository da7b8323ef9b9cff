# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables in the look of the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dtscope_jupyter.view.figures.style import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.view.figures.style import Style

_ROW = 26
_LINE = 15
_PAGE, _LETTER = 940, 7.2


def table(
    style: Style,
    title: str,
    about: str,
    name: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    marks: Sequence[str] | None,
) -> go.Figure:
    """A table; `marks` are the colours of the first column's signs."""
    colors = style.colors
    columns = [[_plain(row[i]) for row in rows] for i in range(len(heads))]
    ink = [marks or [colors["ink"]] * len(rows), *([colors["ink"]] * len(rows) for _ in heads[1:])]
    trace = go.Table(
        columnwidth=list(widths),
        header={
            "values": [f"<b>{head}</b>" for head in heads],
            "fill": {"color": colors["paper"]},
            "line": {"color": colors["rule"]},
            "font": {"color": colors["quiet"], "size": 12},
            "align": "left",
        },
        cells={
            "values": columns,
            "fill": {"color": colors["paper"]},
            "line": {"color": colors["rule"]},
            "align": "left",
            "font": {"color": ink, "size": 12},
            "height": _ROW,
        },
    )
    height = min(165 + sum(_ROW + _LINE * (_lines(row, widths) - 1) for row in rows), 900)
    return style.figure([trace], title, about, name, height=height, caption_below_axis=False, margin={"l": 24, "r": 24, "t": 70, "b": 40})


def _lines(row: Sequence[str], widths: Sequence[int]) -> int:
    """How many lines the row takes on a page of usual width."""
    unit = _PAGE / sum(widths) / _LETTER
    return max(-(-len(cell) // max(int(width * unit), 1)) for cell, width in zip(row, widths, strict=True))


def _plain(text: str) -> str:
    return literal(text).replace("\n", "<br>")
