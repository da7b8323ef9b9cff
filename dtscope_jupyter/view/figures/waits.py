# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.figures.style import literal, rank_height
from dtscope_jupyter.view.text import duration

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

BY = ("rank", "step", "operation", "process_group", "bucket", "phase")


def draw(source: Source, style: Style, by: str = "rank") -> go.Figure:
    """`by`: rank, step, operation, process_group, bucket or phase; by rank with the number of times each was last."""
    if by not in BY:
        message = f"waits can't be shown by {by!r}; choose one of {', '.join(BY)}"
        raise DtscopeError(message)
    waited = waits(source.tables, by=by)
    frame = waited.dropna(subset=["wait_ms", by])
    if not len(frame):
        return style.nothing("Waits", "No collective with times was seen on two ranks.")
    caption = (
        f"{source.name}. Wait: latest start of a collective over ranks - own start. Transfer: its shortest duration over ranks."
        f"{'' if by == 'rank' else ' Means over ranks.'}{_unsure(waited.attrs['uncertainty_ms'])}"
    )
    if by == "step":
        return _over_steps(frame, style, caption)
    return _bars(frame, style, by, caption)


def _unsure(uncertainty_ms: float) -> str:
    return f" Clocks of the hosts: ±{duration(uncertainty_ms)} a collective." if uncertainty_ms > 0 else ""


def _over_steps(frame: pd.DataFrame, style: Style, caption: str) -> go.Figure:
    traces = [
        go.Scatter(x=frame["step"], y=frame[column], name=words, mode="lines", line={"color": style.colors[color], "width": 2})
        for column, words, color in (("wait_ms", "wait", "exposed"), ("transfer_ms", "transfer", "overlapped"))
    ]
    return style.figure(
        traces, "Waits", "ms a step, mean of the ranks", caption, xaxis={"title": "step"}, yaxis={"title": "ms", "rangemode": "tozero"}
    )


def _bars(frame: pd.DataFrame, style: Style, by: str, caption: str) -> go.Figure:
    names = [f"{by.replace('_', ' ')} {value}" if by in ("rank", "bucket") else literal(value) for value in frame[by]]
    text = [f"last {count} ×" if count else "" for count in frame["times_last"]] if by == "rank" else None
    traces = [
        go.Bar(
            x=frame[column],
            y=names,
            orientation="h",
            name=words,
            marker={"color": style.colors[color]},
            text=text if column == "transfer_ms" else None,
            textposition="outside",
            textfont={"color": style.colors["quiet"]},
            cliponaxis=False,
            hovertemplate="%{y}: " + words + " %{x:.3~g} ms<extra></extra>",
        )
        for column, words, color in (("wait_ms", "wait", "exposed"), ("transfer_ms", "transfer", "overlapped"))
    ]
    return style.figure(
        traces,
        "Waits",
        f"ms in all, by {by.replace('_', ' ')}",
        caption,
        height=rank_height(len(frame)),
        barmode="stack",
        legend={"traceorder": "normal"},
        xaxis={"title": "ms", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False},
    )
