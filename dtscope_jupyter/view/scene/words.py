# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The first sentence of a run and what was checked, in words that claim no more than was seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dtscope_jupyter.view.scene.sentences import price
from dtscope_jupyter.view.text import count, duration, significant

if TYPE_CHECKING:
    from dtscope_jupyter.view.scene.build import Scene

_ALONE = (
    "No communication was recorded: unless --collect leaves out collectives, each rank trained by itself. "
    "To train one model together call init_process_group() and wrap the model in DistributedDataParallel or fully_shard."
)


def headline(scene: Scene) -> tuple[str, str, str]:
    """The sentence, the line under it, and the severity: info, warning, critical, or none. How a run went wrong comes first."""
    if scene.ended:
        return _ended(scene)
    if not scene.findings:
        return _calm(scene), measured(scene), "info" if scene.alone else "none"
    top = scene.findings[0]
    if top.kind == "insufficient_data":
        return top.sentence, top.advice, str(top.severity)
    known = [part for part in (price(top), f"confidence {top.confidence:.2f}") if part]
    detail = f"{', '.join(known)}. {top.advice}"
    return top.sentence, detail[:1].upper() + detail[1:], str(top.severity)


def _ended(scene: Scene) -> tuple[str, str, str]:
    top = scene.findings[0] if scene.findings else None
    if top is None:
        detail = f"{_calm(scene)} {measured(scene)}".strip()
    else:
        said = top.sentence.rstrip(".") in scene.ended
        detail = top.advice if said else f"{top.sentence} {top.advice}"
    return scene.ended, detail, "warning" if scene.ended.startswith("Interrupted") else "critical"


def _calm(scene: Scene) -> str:
    if not scene.ranks:
        return "Nothing was recorded."
    seen = f"{count(len(scene.exposed.steps), 'step')} on {count(len(scene.ranks), 'rank')}"
    if scene.findings is None:
        return f"Measured, not judged: {seen}."
    return f"No finding in {seen}."


def measured(scene: Scene) -> str:
    """Exposed communication of the mean step and the overlap ratio of all ranks together, where they are known."""
    numbers = scene.numbers
    exposed, weight = float(numbers["exposed_ms"].mean()), numbers["comm_ms"].where(numbers["overlap_ratio"].notna())
    ratio = float((numbers["overlap_ratio"] * weight).sum() / weight.sum()) if weight.sum() > 0 else math.nan
    if not math.isfinite(exposed) or not (float(numbers["comm_ms"].sum()) > 0 or scene.exposed.estimated.any()):
        return (_ALONE if scene.alone else "No communication with times was seen.") if scene.ranks else ""
    step = float(numbers["step_ms"].mean())
    share = f", {significant(100 * exposed / step)} % of a step of {duration(step)}{_median(scene)}" if step > 0 else ""
    hidden = f"; overlap ratio {ratio:.2f}" if math.isfinite(ratio) else ""
    return f"Exposed communication {duration(exposed)} a step{share}{hidden}{_of_steps(scene)}."


def _median(scene: Scene) -> str:
    """What the diagnosis calls a step's length, beside the mean."""
    if len(scene.exposed.steps) <= 1 or not scene.median_ms > 0:
        return ""
    return f" (mean; median {duration(scene.median_ms)})"


def _of_steps(scene: Scene) -> str:
    """How many steps the ratio is of, where it is not of all."""
    return f" in {sampled(scene)}" if scene.exposed.partly else ""


def sampled(scene: Scene) -> str:
    """As in: 2 timed steps of 40."""
    timed = int(scene.exposed.timed.any(axis=0).sum())
    return f"{count(timed, 'timed step')} of {len(scene.exposed.steps):,}"


def checks(scene: Scene) -> list[tuple[bool, str]]:
    """What limits all findings, and what the gradients say where they were counted: whether it is in order, and the words."""
    said = [(False, remark) for remark in scene.remarks]
    if scene.agree:
        said.append((True, "synchronised gradients agree on all ranks"))
    if scene.nonfinite == 0:
        said.append((True, "no NaN or infinite gradient"))
    if scene.nonfinite > 0:
        said.append((False, f"{count(int(scene.nonfinite), 'NaN or infinite gradient value')}"))
    return said


def unsure(scene: Scene) -> str:
    """How far times of several hosts may be off; empty where all ranks share a clock."""
    return f"clocks ±{duration(scene.uncertainty_ms)}" if scene.uncertainty_ms > 0 else ""


def caption(scene: Scene) -> str:
    """What the numbers by rank are means of."""
    if scene.exposed.partly and not scene.exposed.estimated.any():
        return f"mean of a step in ms; all but step: of {sampled(scene)}"
    if not scene.exposed.estimated.any():
        if scene.uncertainty_ms > 0:
            return f"mean of a step in ms; wait: sum over collectives, each ±{duration(scene.uncertainty_ms)}"
        return "mean of a step in ms; overlap: comm under compute; wait: sum over collectives"
    if not scene.exposed.timed.any():
        return "mean of a step in ms; exposed: as the ranks estimate it"
    return f"mean of a step in ms; compute, comm, overlap, wait: of {sampled(scene)}"
