# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Devices over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.schema import TABLES
from dtscope_jupyter.view.figures.style import literal

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

METRICS = {column.name: column for column in TABLES["devices"].columns if column.unit and column.name != "time_ns"}
_MANY = 24
_FACTORS = {"bytes": (1 / 2**30, "GiB"), "bytes/s": (1e-9, "GB/s"), "degC": (1.0, "°C")}


def draw(source: Source, style: Style, metric: str | None = None) -> go.Figure:
    """`metric`: a column of the table `devices`; utilisation, else the first that was recorded, unless said."""
    if metric is not None and metric not in METRICS:
        message = f"no metric {metric!r}; choose one of {', '.join(METRICS)}"
        raise DtscopeError(message)
    frame = source.tables["devices"].to_pandas()
    known = [name for name in ("utilization", *METRICS) if len(frame) and frame[name].notna().any()]
    chosen = metric or (known[0] if known else None)
    if chosen is None or chosen not in known:
        also = f" Recorded: {', '.join(dict.fromkeys(known))}." if known else ""
        return style.nothing("Devices", f"No sample of {chosen or 'a device'} was recorded.{also}")
    column = METRICS[chosen]
    factor, unit = _FACTORS.get(column.unit, (1.0, column.unit))
    frame["value"], frame["seconds"] = frame[chosen] * factor, (frame["time_ns"] - frame["time_ns"].min()) / 1e9
    lines = _each(frame, style) if frame["rank"].nunique() <= _MANY else _band(frame, style)
    title = chosen.replace("_", " ").removesuffix(" bytes").removesuffix(" mhz").removesuffix(" w").removesuffix(" c").capitalize()
    caption = f"{source.name}. {column.meaning.capitalize()}, a line a device; gaps were not sampled."
    if len(lines) == 2 and frame["rank"].nunique() > _MANY:  # noqa: PLR2004
        caption = f"{source.name}. {column.meaning.capitalize()}: median and range over {frame['rank'].nunique()} ranks, by second."
    return style.figure(
        lines,
        title,
        f"{unit} over time",
        caption,
        xaxis={"title": "s since the first sample"},
        yaxis={"title": unit, "rangemode": "tozero"},
        showlegend=True,
    )


def _each(frame: pd.DataFrame, style: Style) -> list[go.Scatter]:
    return [
        go.Scatter(
            x=part["seconds"],
            y=part["value"],
            mode="lines",
            name=f"rank {rank} {literal(device)}",
            line={"width": 1.8, "color": style.series[i % len(style.series)], "dash": ("solid", "dot", "dash")[i // len(style.series) % 3]},
            hovertemplate="%{x:.1f} s: %{y:.3~g}",
        )
        for i, ((rank, device), part) in enumerate(frame.sort_values("time_ns").groupby(["rank", "device"], observed=True, sort=True))
    ]


def _band(frame: pd.DataFrame, style: Style) -> list[go.Scatter]:
    second = frame.groupby(frame["seconds"].round())["value"].agg(["min", "median", "max"])
    x = second.index.to_list()
    color = style.colors["compute"]
    edge = go.Scatter(
        x=x + x[::-1],
        y=[*second["max"], *second["min"][::-1]],
        fill="toself",
        fillcolor=color,
        line={"width": 0},
        name="range",
        hoverinfo="skip",
    )
    middle = go.Scatter(x=x, y=second["median"], mode="lines", name="median", line={"width": 2, "color": style.colors["overlapped"]})
    return [edge, middle]
