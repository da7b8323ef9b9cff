# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One step on every rank: compute, communication under compute, exposed communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dtscope_jupyter.analysis.activity import activity
from dtscope_jupyter.analysis.clocks import offsets
from dtscope_jupyter.analysis.overlap import overlap_of
from dtscope_jupyter.analysis.waits import timed
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.intervals import union
from dtscope_jupyter.view.figures.style import literal, rank_height
from dtscope_jupyter.view.scene.calls import Call, calls
from dtscope_jupyter.view.scene.choose import telling_ranks, telling_step
from dtscope_jupyter.view.scene.matrix import matrix
from dtscope_jupyter.view.scene.timeline import Lane, Timeline, on_one_clock, timeline
from dtscope_jupyter.view.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.intervals import Set
    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

_LANES = 64
_DETAIL = 2000
_KINDS = (("compute", "compute", 0.46, 0.2), ("comm under compute", "overlapped", 0.26, -0.2), ("exposed comm", "exposed", 0.26, -0.2))


def draw(source: Source, style: Style, step: int | None = None, ranks: Sequence[int] | None = None) -> go.Figure:
    """`step`: the dearest that a finding blames, else the median, unless said; `ranks`: all, or 64 telling ones."""
    acts = activity(source.tables)
    by_step = matrix(overlap_of(acts, ("rank", "step"), source.tables["steps"]), "exposed_ms")
    known = [by_step.steps[place] for place in np.flatnonzero(by_step.timed.any(axis=0))]
    chosen, why = _step(source, known, step, telling_step(by_step, _blamed(source)) if step is None else None)
    waited = calls(timed(source.tables), chosen, 1)
    present = np.unique(np.concatenate((acts.comm.rank, acts.compute.rank))).tolist()
    cost = np.nanmean(by_step.values, axis=1).tolist() if len(by_step.ranks) == len(present) else [0.0] * len(present)
    shown = telling_ranks(present, [call.last for call in waited], cost, _LANES) if ranks is None else _known(present, ranks)
    clocks = offsets(source.tables, None)
    found = timeline(on_one_clock(acts, clocks), chosen, shown)
    if found is None:
        return style.nothing("Timeline", "Nothing with a start and an end was recorded.")
    unsure = f", clocks ±{duration(clocks.worst / 1e6)}" if clocks.worst else ""
    about = f"{duration(found.length_ns / 1e6)}{why}{unsure}"
    return _figure(found, style, "Timeline" if chosen is None else f"Step {chosen}", about, waited[0] if waited else None, source.name)


def _blamed(source: Source) -> list[int] | None:
    costly = [finding for finding in source.diagnosis.findings if finding.severity != "info"]
    return list(costly[0].steps) if costly else None


def _step(source: Source, steps: list[int], wanted: int | None, chosen: object) -> tuple[int | None, str]:
    from dtscope_jupyter.view.scene.choose import Chosen

    if wanted is not None and wanted not in steps:
        message = f"step {wanted} has no times in {source.name}; choose from {steps[0]} to {steps[-1]}" if steps else "no step has times"
        raise DtscopeError(message)
    return (chosen.step, f", {chosen.why}") if isinstance(chosen, Chosen) else (wanted, "")


def _known(present: list[int], ranks: Sequence[int]) -> list[int]:
    for rank in ranks:
        if rank not in present:
            message = f"rank {rank} has no times; choose from {present}"
            raise DtscopeError(message)
    return sorted(set(ranks))


def _figure(found: Timeline, style: Style, title: str, about: str, thread: Call | None, name: str) -> go.Figure:
    traces = [_bars(found, style, *kind) for kind in _KINDS]
    lanes = {lane.rank: i for i, lane in enumerate(found.lanes)}
    made = style.figure(
        traces,
        title,
        about,
        f"{name}. Thick: compute. Thin: communication, orange where nothing was computed at the same time.",
        height=rank_height(len(lanes), each=46),
        barmode="overlay",
        bargap=0,
        xaxis={"title": "ms", "range": [0, found.length_ns / 1e6]},
        yaxis={
            "autorange": "reversed",
            "tickmode": "array",
            "tickvals": list(lanes.values()),
            "ticktext": [f"rank {rank}" for rank in lanes],
            "showgrid": False,
        },
    )
    if thread is not None:
        _thread(made, found, style, thread, lanes)
    return made


def _bars(found: Timeline, style: Style, words: str, kind: str, width: float, lift: float) -> go.Bar:
    least = found.length_ns / _DETAIL
    parts = [_visible(lane, kind, least) for lane in found.lanes]
    starts = np.concatenate([part[0] for part in parts]) / 1e6
    lengths = np.concatenate([part[1] - part[0] for part in parts]) / 1e6
    rows = np.concatenate([np.full(len(part[0]), i - lift) for i, part in enumerate(parts)])
    return go.Bar(
        base=starts,
        x=lengths,
        y=rows,
        width=width,
        orientation="h",
        name=words,
        marker={"color": style.colors[kind], "line": {"width": 0}},
        hovertemplate=words + " from %{base:.4~g} ms for %{x:.3~g} ms<extra></extra>",
    )


def _visible(lane: Lane, kind: str, least: float) -> Set:
    """What a page can show of a lane: gaps below `least` closed, and exposed parts below it left to the bar that they lie on."""
    if kind == "exposed":
        starts, ends = lane.exposed
        return starts[ends - starts > least], ends[ends - starts > least]
    covered = lane.compute
    if kind == "overlapped":
        covered = union(*(np.concatenate(pair) for pair in zip(lane.overlapped, lane.exposed, strict=True)))
    starts, ends = covered
    if len(starts) < 2:  # noqa: PLR2004
        return covered
    apart = starts[1:] - ends[:-1] > least
    return starts[np.concatenate(([True], apart))], ends[np.concatenate((apart, [True]))]


def _thread(made: go.Figure, found: Timeline, style: Style, thread: Call, lanes: dict[int, int]) -> None:
    points = [((start - found.origin_ns) / 1e6, lanes[rank] + 0.2, rank) for rank, start in thread.starts.items() if rank in lanes]
    ink = style.colors["ink"]
    made.add_scatter(
        x=[x for x, _, _ in points],
        y=[y for _, y, _ in points],
        mode="lines+markers",
        name=f"start of the {literal(thread.operation)} most waited for",
        line={"color": ink, "width": 1.3},
        marker={"color": style.colors["paper"], "size": 8, "line": {"color": ink, "width": 1.3}},
        hovertemplate="starts at %{x:.4~g} ms<extra></extra>",
    )
    for x, y, rank in points:
        if rank == thread.last and thread.wait_ms > 0:
            made.add_annotation(
                x=x,
                y=y,
                text=f"last by {duration(thread.late_ms)}",
                showarrow=False,
                xanchor="right",
                xshift=-8,
                font={"color": style.colors["warning"], "size": 12},
                bgcolor=style.colors["finding"],
                borderpad=3,
            )
