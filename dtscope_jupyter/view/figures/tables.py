# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables in the look of the figures."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import plotly.graph_objects as go

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.view.figures.style import Style

_ROW = 26
_LINE = 44


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
    long = any(len(cell) > 60 for row in rows for cell in row)  # noqa: PLR2004
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
            "height": _LINE if long else _ROW,
        },
    )
    height = min(150 + (2 * _LINE if long else _ROW) * (len(rows) + 1), 900)
    return style.figure([trace], title, about, name, height=height, caption_below_axis=False, margin={"l": 24, "r": 24, "t": 70, "b": 40})


def _plain(text: str) -> str:
    return escape(text).replace("&lt;br&gt;", "<br>")
