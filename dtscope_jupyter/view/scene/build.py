# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the scene together from a run's tables and its diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from dtscope_jupyter.analysis.activity import activity
from dtscope_jupyter.analysis.clocks import offsets
from dtscope_jupyter.analysis.overlap import ESTIMATE, of_timed_steps, overlap_of
from dtscope_jupyter.analysis.waits import timed, waits
from dtscope_jupyter.diagnosis.desync import tolerance_on_cpu
from dtscope_jupyter.view.scene.calls import Call, calls
from dtscope_jupyter.view.scene.choose import Chosen, telling_ranks, telling_step
from dtscope_jupyter.view.scene.gradients import Gradients, gradients
from dtscope_jupyter.view.scene.matrix import Matrix, matrix
from dtscope_jupyter.view.scene.numbers import numbers, step_times
from dtscope_jupyter.view.scene.observer import Observer, observer
from dtscope_jupyter.view.scene.progress import Progress, Stuck, progress
from dtscope_jupyter.view.scene.select import ranks_of
from dtscope_jupyter.view.scene.timeline import Timeline, on_one_clock, timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd
    import pyarrow as pa

    from dtscope_jupyter.diagnosis.finding import Finding
    from dtscope_jupyter.diagnosis.result import Diagnosis

LANES, CALLS = 12, 6
_ALL_LANES = 16
_RANKED = ("steps", "collectives", "spans", "host", "gradients", "devices", "groups", "clocks")
_STUCK = ("hang", "desync")
_ABOUT_GRADIENTS = ("nonfinite", "desync")
_COSTS = ("warning", "critical")


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the picture and the report say of a run; a part is None where nothing of it was recorded."""

    ranks: list[int]
    findings: list[Finding] | None
    exposed: Matrix
    comm: Matrix
    step_ms: float
    numbers: pd.DataFrame
    chosen: Chosen | None
    timeline: Timeline | None
    calls: list[Call]
    uncertainty_ms: float
    observer: Observer
    gradients: Gradients | None
    progress: Progress | None
    nonfinite: float
    agree: bool | None
    ended: str = ""
    remarks: tuple[str, ...] = ()
    median_ms: float = float("nan")
    alone: bool = False

    @property
    def blamed(self) -> list[int]:
        """The ranks that findings name which cost something; none where they name all."""
        costly = [f for f in self.findings or [] if f.severity in _COSTS]
        named = {rank for finding in costly for rank in finding.ranks}
        return [] if named.issuperset(self.ranks) else sorted(named)


def scene(tables: Mapping[str, pa.Table], diagnosis: Diagnosis | None) -> Scene:
    """Builds it; an analysis that finds nothing leaves its part empty."""
    acts, clocks = activity(tables), offsets(tables, None)
    by_step = _whole(overlap_of(acts, ("rank", "step"), tables["steps"]), tables["steps"])
    exposed = matrix(by_step, "exposed_ms")
    findings = None if diagnosis is None else list(diagnosis.findings)
    chosen = telling_step(exposed, _blamed_steps(findings, exposed))
    by_rank = by_step if len(by_step) else overlap_of(acts, ("rank",), tables["steps"])
    times = step_times(tables)
    mean = numbers(by_rank, _waited(tables, by_step), times)
    ranks = ranks_of(tables, _RANKED)
    step = chosen.step if chosen else None
    waited = timed(tables)
    worst = calls(waited, step, CALLS)
    first = [*(call.last for call in worst[:1]), *(r for f in findings or [] for r in f.ranks)]
    limit = len(ranks) if len(ranks) <= _ALL_LANES else LANES
    shown = telling_ranks([int(r) for r in mean.index], first, mean["exposed_ms"].tolist(), limit)
    shown_lanes = timeline(on_one_clock(acts, clocks), step, shown)
    stuck = _stuck(findings)
    return Scene(
        ranks=ranks,
        findings=findings,
        exposed=exposed,
        comm=matrix(by_step, "comm_ms"),
        step_ms=float(times["step_ms"].median()),
        numbers=mean,
        chosen=chosen,
        timeline=shown_lanes,
        calls=worst,
        uncertainty_ms=clocks.worst / 1e6,
        observer=observer(tables),
        gradients=gradients(tables, _gradient_step(findings)),
        progress=progress(tables, stuck) if stuck or shown_lanes is None else None,
        nonfinite=_total(tables),
        agree=_agree(tables, findings or ()),
        ended=diagnosis.ended if diagnosis else "",
        remarks=diagnosis.remarks if diagnosis else (),
        median_ms=diagnosis.step_ms if diagnosis else float("nan"),
        alone=len(ranks) > 1 and _apart(tables),
    )


def _apart(tables: Mapping[str, pa.Table]) -> bool:
    """Whether ranks recorded steps and no sign of each other."""
    return len(tables["steps"]) > 0 and not any(len(tables[name]) for name in ("collectives", "groups", "spans"))


def _waited(tables: Mapping[str, pa.Table], by_step: pd.DataFrame) -> pd.DataFrame:
    """Waits by rank, of the steps whose collectives were all timed."""
    if not (by_step["source"] == ESTIMATE).any():
        return waits(tables, by="rank")
    each = of_timed_steps(waits(tables, by=["rank", "step"]), by_step)
    return each.groupby("rank")[["wait_ms", "times_last"]].sum().reset_index()


def _blamed_steps(findings: list[Finding] | None, exposed: Matrix) -> list[int] | None:
    """The steps of the finding that the headline tells; where it costs little, those with times or None."""
    if not findings:
        return None
    costly = [f for f in findings if f.severity in _COSTS]
    if costly:
        return list(costly[0].steps)
    timed = {exposed.steps[place] for place in np.flatnonzero(exposed.timed.any(axis=0))} if exposed.steps else set()
    return [step for step in findings[0].steps if step in timed] or None


def _whole(by_step: pd.DataFrame, steps: pa.Table) -> pd.DataFrame:
    """Every step that has ended, of which nothing may be known; not the one that a rank had begun when the recording ended."""
    if not len(steps) or not len(by_step):
        return by_step
    ended = steps.filter(pc.is_valid(steps["end_ns"])).select(["rank", "step"]).to_pandas().drop_duplicates()
    whole = by_step.merge(ended, on=["rank", "step"], how="outer", indicator=True).sort_values(["rank", "step"], ignore_index=True)
    known: pd.DataFrame = whole[(whole.pop("_merge") != "left_only") | (whole["source"] == "profiler")]
    return known


def _stuck(findings: list[Finding] | None) -> Stuck | None:
    found = next((finding.evidence for finding in findings or [] if finding.kind in _STUCK), None)
    if found is None:
        return None
    return Stuck(found.get("process_group"), found.get("seq"), list(found.get("waiting") or []))


def _gradient_step(findings: list[Finding] | None) -> int | None:
    """The step of the gradients that a finding is about."""
    return next((min(f.steps) for f in findings or [] if f.kind in _ABOUT_GRADIENTS and f.steps), None)


def _total(tables: Mapping[str, pa.Table]) -> float:
    """NaN and infinite values in all gradients; NaN where nobody counted."""
    counted = [pc.sum(tables[name]["nonfinite"]).as_py() for name in ("steps", "gradients")]
    known = [value for value in counted if value is not None]
    return float(max(known)) if known else float("nan")


def _agree(tables: Mapping[str, pa.Table], findings: Iterable[Finding]) -> bool | None:
    """Whether every step's synchronised norm is the same on all ranks, to rounding; None where fewer than two tell or none met."""
    if any((each.kind, each.cause) == ("desync", "values") for each in findings):
        return False
    if _apart(tables):
        return None
    steps = tables["steps"].select(["rank", "step", "synced_norm"]).to_pandas().dropna()
    norms = steps.groupby("step")["synced_norm"].agg(["min", "max", "count"])
    norms = norms[(norms["count"] > 1) & np.isfinite(norms["max"])]
    return bool((norms["max"] - norms["min"] <= tolerance_on_cpu(tables["collectives"]) * norms["max"].abs()).all()) if len(norms) else None
