# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How fast collectives move bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dtscope_jupyter.analysis.bandwidth import BY, bandwidth
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.figures.style import literal
from dtscope_jupyter.view.text import size

if TYPE_CHECKING:
    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

_SIGNS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "x", "pentagon")


def draw(source: Source, style: Style, by: str = "operation") -> go.Figure:
    """Bus bandwidth over message size, a colour for each value of `by`."""
    if by not in BY or by == "bytes":
        message = f"bandwidth can't be shown by {by!r}; choose one of {', '.join(name for name in BY if name != 'bytes')}"
        raise DtscopeError(message)
    frame = bandwidth(source.tables, by=[by, "bytes"])
    if not len(frame):
        return style.nothing("Bus bandwidth", "No collective with bytes and times was seen.")
    traces = [
        go.Scatter(
            x=part["bytes"],
            y=part["bus_gb_s"],
            mode="markers",
            name=literal(value),
            customdata=[(size(b), n) for b, n in zip(part["bytes"], part["collectives"], strict=True)],
            marker={"color": style.series[i % len(style.series)], "symbol": _SIGNS[i % len(_SIGNS)], "size": 9},
            hovertemplate="%{customdata[0]}: %{y:.3~g} GB/s over %{customdata[1]}<extra>" + literal(value) + "</extra>",
        )
        for i, (value, part) in enumerate(frame.groupby(by, dropna=False, sort=True))
    ]
    powers = [2**k for k in range(0, 51, 5)]
    caption = f"{source.name}. Bytes / time × NCCL's factor of the operation; time: shortest duration over ranks."
    return style.figure(
        traces,
        "Bus bandwidth",
        "GB/s over message size",
        caption,
        showlegend=True,
        xaxis={"title": "message size", "type": "log", "tickvals": powers, "ticktext": [size(p) for p in powers]},
        yaxis={"title": "GB/s", "rangemode": "tozero"},
    )
