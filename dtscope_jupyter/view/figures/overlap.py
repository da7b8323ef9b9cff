# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The overlap map: a quantity as rank x step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dtscope_jupyter.analysis.overlap import overlap
from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.figures.style import rank_height
from dtscope_jupyter.view.scene.matrix import Matrix, matrix, strong_end
from dtscope_jupyter.view.scene.numbers import step_times

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style


@dataclass(frozen=True, slots=True)
class _Metric:
    title: str
    unit: str
    means: str
    good: bool = False


METRICS = {
    "exposed_ms": _Metric("Exposed communication", "ms a step", "Communication without compute at the same time."),
    "overlap_ratio": _Metric("Overlap ratio", "share of comm", "|comm and compute| / |comm|: 0.8 and above is good.", good=True),
    "comm_ms": _Metric("Communication", "ms a step", "At least one collective in flight."),
    "compute_ms": _Metric("Compute", "ms a step", "Device: a kernel that is no communication; CPU: not blocked in a collective."),
    "wait_ms": _Metric("Waiting for others", "ms a step", "Sum over collectives of latest start over ranks - own start."),
    "step_ms": _Metric("Step time", "ms", "End of the step - its start."),
}
_CELLS = 200_000
_DOTTED = 4_000


def draw(source: Source, style: Style, metric: str = "exposed_ms") -> go.Figure:
    """`metric`: exposed_ms, overlap_ratio, comm_ms, compute_ms, wait_ms or step_ms."""
    if metric not in METRICS:
        message = f"no metric {metric!r}; choose one of {', '.join(METRICS)}"
        raise DtscopeError(message)
    shown = METRICS[metric]
    frame = _frame(source, metric)
    if not len(frame):
        return style.nothing(shown.title, "No step with times was recorded.")
    cells = matrix(frame, metric)
    caption = f"{source.name}. {shown.means}"
    if np.isnan(cells.values).all():
        return style.nothing(shown.title, "Nothing of it was recorded.")
    trace, pooled = _heat(cells, style, shown, _step_ms(source))
    return style.figure(
        [trace, *_dots(cells, style)],
        shown.title,
        f"{shown.unit}, rank × step",
        caption + _grades(cells) + pooled,
        height=rank_height(len(cells.ranks)),
        xaxis={"title": "step", "showgrid": False, **_ticks(cells.steps, 12)},
        yaxis={"title": "rank", "autorange": "reversed", "showgrid": False, **_ticks(cells.ranks, 32)},
    )


def _grades(cells: Matrix) -> str:
    """How well the cells are known, where not all alike."""
    if not cells.estimated.any():
        return ""
    timed = int(cells.timed.any(axis=0).sum())
    return f" Of {len(cells.steps):,} steps {timed:,} had all collectives timed; the others are the ranks' own estimate."


def _frame(source: Source, metric: str) -> pd.DataFrame:
    if metric == "step_ms":
        return step_times(source.tables).assign(source="")
    if metric == "wait_ms":
        return waits(source.tables, by=["rank", "step"]).dropna(subset=["step"]).assign(source="")
    return overlap(source.tables, by=["rank", "step"])


def _step_ms(source: Source) -> float:
    return float(step_times(source.tables)["step_ms"].median())


def _heat(cells: Matrix, style: Style, shown: _Metric, step_ms: float) -> tuple[go.Heatmap, str]:
    columns = max(_CELLS // len(cells.ranks), 1)
    pooled = cells.pooled(len(cells.ranks), columns)
    trace = go.Heatmap(
        z=pooled.values,
        x=cells.steps[:: pooled.across],
        y=cells.ranks,
        colorscale=style.good_scale if shown.good else style.scale,
        zmin=0,
        zmax=1 if shown.good else strong_end(cells.values, step_ms),
        xgap=1 if len(cells.steps) <= 200 else 0,  # noqa: PLR2004
        ygap=1 if len(cells.ranks) <= 64 else 0,  # noqa: PLR2004
        colorbar=style.colorbar(shown.unit),
        customdata=np.where(pooled.best, "", " (estimate)") if cells.estimated.any() else None,
        hovertemplate=f"rank %{{y}}, step %{{x}}: %{{z:.3~g}}{'' if shown.good else ' ms'}"
        f"{'%{customdata}' if cells.estimated.any() else ''}<extra></extra>",
    )
    return trace, f" Each cell the largest of {pooled.across} steps." if pooled.across > 1 else ""


def _dots(cells: Matrix, style: Style) -> list[go.Scatter]:
    """A dot on each cell of which all collectives were timed, where others are estimates, and where cells are large enough."""
    if not cells.estimated.any() or not cells.timed.any() or cells.timed.size > _DOTTED:
        return []
    row, at = np.nonzero(cells.timed)
    dots = {"color": style.colors["ink"], "size": 3}
    ranks, steps = np.array(cells.ranks)[row], np.array(cells.steps)[at]
    return [go.Scatter(x=steps, y=ranks, mode="markers", marker=dots, name="all collectives timed", hoverinfo="skip", showlegend=True)]


def _ticks(values: list[int], most: int) -> dict[str, Any]:
    return {"tickmode": "array", "tickvals": values} if len(values) <= most else {"tickformat": "d"}
