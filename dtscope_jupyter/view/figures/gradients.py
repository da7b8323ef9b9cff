# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The gradient map: parameter x rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
import pyarrow.compute as pc

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.figures.style import literal, rank_height
from dtscope_jupyter.view.scene.select import where

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

VALUES = {
    "local_norm": ("Gradient norm before averaging", "L2 norm, log scale"),
    "synced_norm": ("Gradient norm after averaging", "L2 norm, log scale"),
    "ready_ms": ("Gradient ready", "ms after the rank's first one"),
    "nonfinite": ("Values that are NaN or infinite", "number of them"),
}


def draw(source: Source, style: Style, value: str = "local_norm", step: int | None = None) -> go.Figure:
    """`value`: local_norm, synced_norm, ready_ms or nonfinite; `step`: the last one that has it, unless said."""
    if value not in VALUES:
        message = f"no value {value!r}; choose one of {', '.join(VALUES)}"
        raise DtscopeError(message)
    title, unit = VALUES[value]
    column = "ready_ns" if value == "ready_ms" else value
    table = source.tables["gradients"].filter(pc.is_valid(source.tables["gradients"][column]))
    if not len(table):
        return style.nothing(title, "No gradient of that kind was recorded.")
    shown = pc.max(table["step"]).as_py() if step is None else step
    frame = where(table, step=shown).select(["rank", "parameter_id", column]).to_pandas()
    if not len(frame):
        steps = sorted(table["step"].unique().to_pylist())
        message = f"step {step} has no {value}; choose from {steps[0]} to {steps[-1]}"
        raise DtscopeError(message)
    return _figure(source, style, frame, value, f"{unit}, parameter × rank, step {shown}", title)


def _figure(source: Source, style: Style, frame: pd.DataFrame, value: str, about: str, title: str) -> go.Figure:
    if value == "ready_ms":
        frame["ready_ms"] = (frame["ready_ns"] - frame.groupby("rank")["ready_ns"].transform("min")) / 1e6
    parameters = source.tables["parameters"]
    names = dict(zip(parameters["parameter_id"].to_pylist(), parameters["parameter"].to_pylist(), strict=True))
    wide = frame.pivot_table(index="parameter_id", columns="rank", values=value, aggfunc="last")
    numbers = wide.to_numpy(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        colors = np.where(numbers > 0, np.log10(numbers), np.nan) if value.endswith("_norm") else numbers
    finite = np.where(np.isfinite(colors), colors, np.nan)
    trace = go.Heatmap(
        z=finite,
        customdata=numbers,
        x=[f"rank {rank}" for rank in wide.columns],
        y=[literal(names.get(i, f"parameter {i}")) for i in wide.index],
        colorscale=style.scale,
        xgap=1,
        ygap=1 if len(wide) <= 128 else 0,  # noqa: PLR2004
        colorbar=style.colorbar("") | _log_ticks(finite, value),
        hovertemplate="%{y}, %{x}: %{customdata:.3~g}<extra></extra>",
    )
    caption = f"{source.name}. One row a parameter, in the order of the model."
    return style.figure(
        [trace], title, about, caption, height=rank_height(len(wide), each=18), yaxis={"autorange": "reversed", "showgrid": False}
    )


def _log_ticks(logs: np.ndarray[tuple[int, ...], np.dtype[np.float64]], value: str) -> dict[str, object]:
    known = logs[np.isfinite(logs)]
    if not value.endswith("_norm") or not len(known):
        return {}
    places = list(range(int(np.floor(known.min())), int(np.ceil(known.max())) + 1))
    return {"tickvals": places, "ticktext": [f"1e{place}" for place in places]}
