# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which panels a scene gets, and the words in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtscope_jupyter.view.picture.collectives import Collectives
from dtscope_jupyter.view.picture.findings import Notes
from dtscope_jupyter.view.picture.header import Header, Headline
from dtscope_jupyter.view.picture.heat import Heat
from dtscope_jupyter.view.picture.instead import Instead
from dtscope_jupyter.view.picture.lanes import Lanes
from dtscope_jupyter.view.picture.norms import Norms
from dtscope_jupyter.view.picture.panel import MARGIN, right
from dtscope_jupyter.view.picture.ranks import Ranks
from dtscope_jupyter.view.picture.steps_taken import StepsTaken
from dtscope_jupyter.view.scene.choose import telling_ranks
from dtscope_jupyter.view.scene.words import caption, checks, headline, unsure
from dtscope_jupyter.view.text import count, duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dtscope_jupyter.view.picture.canvas import Canvas
    from dtscope_jupyter.view.picture.panel import Panel
    from dtscope_jupyter.view.scene.build import Scene

_MAP = (192, 200)
_TABLE_ROWS = 12
_TABLE_SHARE = 0.56
_MOST_FINDINGS = 6
_FEW_RANKS = 8
_GRADIENTS = 0.68
_COLOR = {"info": "accent", "warning": "warning", "critical": "critical"}


def panels(scene: Scene, canvas: Canvas, title: str, subtitle: str) -> list[list[Panel]]:
    """Rows of panels from top to bottom; `canvas` measures text."""
    rows: list[list[Panel]] = [[Header(title, subtitle, str(scene.observer))], [_headline(scene, canvas)]]
    if scene.progress is not None:
        rows.append([StepsTaken(scene.progress, scene.blamed)])
    if scene.timeline is not None or scene.progress is None or scene.exposed.estimated.any():
        marked = scene.chosen.step if scene.chosen else None
        pooled = scene.exposed.pooled(*_MAP)
        rows.append([Heat(scene.exposed, pooled, scene.step_ms, scene.comm.values, marked, scene.blamed, _since(scene))])
        rows.extend([[_lanes(scene)]] if scene.timeline is not None or scene.progress is None else [])
    rows.append(_numbers(scene, canvas))
    rows += _below(scene, canvas)
    return [row for row in rows if row]


def _since(scene: Scene) -> int | None:
    """The first step of the dearest finding that costs something and does not touch all steps."""
    costly = next((f for f in scene.findings or [] if f.severity in _COLOR and f.severity != "info" and f.steps), None)
    return min(costly.steps) if costly else None


def _below(scene: Scene, canvas: Canvas) -> list[list[Panel]]:
    """Gradients and notes, side by side where both are narrow."""
    room = right(canvas) - MARGIN
    narrow = scene.gradients is not None and len(scene.gradients.ranks) <= _FEW_RANKS and len(scene.findings or []) <= 1
    if scene.gradients is None or not narrow:
        return [[Norms(scene.gradients)] if scene.gradients is not None else [], _notes(scene, canvas, MARGIN)]
    width = _GRADIENTS * room
    notes = _notes(scene, canvas, MARGIN + width + 40, scene.gradients.order)
    return [[Norms(scene.gradients, width if notes else None), *notes]]


def _headline(scene: Scene, canvas: Canvas) -> Headline:
    words, detail, severity = headline(scene)
    room = right(canvas) - MARGIN - 36
    color = "rule" if scene.findings is None or not scene.ranks else _COLOR.get(severity, "good")
    return Headline(wrap(canvas, words, room, 15.5), wrap(canvas, detail, room, 12.5), color, severity not in ("warning", "critical"))


def _lanes(scene: Scene) -> Lanes:
    if scene.timeline is None:
        return Lanes(None, None, "Timeline", "", scene.blamed)
    name = "Timeline" if scene.chosen is None else f"Step {scene.chosen.step}"
    parts = [duration(scene.timeline.length_ns / 1e6)]
    if scene.chosen is not None:
        parts.append(scene.chosen.why)
    if len(scene.timeline.lanes) < len(scene.ranks):
        parts.append(f"{len(scene.timeline.lanes)} telling ranks of {len(scene.ranks)}")
    parts.extend(filter(None, [unsure(scene)]))
    return Lanes(scene.timeline, scene.calls[0] if scene.calls else None, name, " · ".join(parts), scene.blamed)


def _numbers(scene: Scene, canvas: Canvas) -> list[Panel]:
    numbers = scene.numbers
    if not len(numbers):
        return []
    width = (right(canvas) - MARGIN) * _TABLE_SHARE
    first = [*scene.blamed, *(call.last for call in scene.calls[:1])]
    kept = telling_ranks([int(r) for r in numbers.index], first, numbers["exposed_ms"].tolist(), _TABLE_ROWS)
    table = Ranks(numbers.loc[kept], len(numbers) - len(kept), scene.blamed, width, caption(scene))
    if (excess := _excess(scene)) is not None:
        return [table, Instead(*excess, MARGIN + width + 40)]
    if not scene.calls or scene.timeline is None:
        return [table]
    where = ", ".join(filter(None, [f"step {scene.chosen.step}" if scene.chosen else "whole recording", unsure(scene)]))
    return [table, Collectives(scene.calls[: max(len(kept), 4)], where, scene.blamed, MARGIN + width + 40)]


def _excess(scene: Scene) -> tuple[Sequence[int], Mapping[str, float]] | None:
    top = scene.findings[0] if scene.findings else None
    excess = top.evidence.get("excess_ms") if top else None
    return (top.ranks, excess) if top and isinstance(excess, dict) and excess else None


def _notes(scene: Scene, canvas: Canvas, left: float, last: str = "") -> list[Panel]:
    others = (scene.findings or [])[1:]
    entries: list[tuple[str | None, str, bool]] = [(_COLOR[f.severity], f.sentence, True) for f in others[:_MOST_FINDINGS]]
    if len(others) > _MOST_FINDINGS:
        entries.append((None, f"and {count(len(others) - _MOST_FINDINGS, 'more finding')}", False))
    entries += [("good" if good else "critical", words, False) for good, words in checks(scene)]
    entries += [(None, last, False)] if last and entries else []
    lines: list[tuple[str | None, str, bool]] = []
    for color, words, bold in entries:
        first, *rest = wrap(canvas, words, right(canvas) - left - 20, 12.5)
        lines += [(color, first, bold), *((None, line, bold) for line in rest)]
    return [Notes("Also found" if others else "Checked", lines, left)] if lines else []


def wrap(canvas: Canvas, text: str, width: float, size: float, most: int = 2) -> list[str]:
    """At most `most` lines, broken between words, the last shortened."""
    lines: list[str] = []
    rest = text.split()
    while rest and len(lines) < most - 1:
        taken = len(rest)
        while taken > 1 and canvas.measure(" ".join(rest[:taken]), size=size) > width:
            taken -= 1
        lines.append(canvas.fit(" ".join(rest[:taken]), width, size=size))
        rest = rest[taken:]
    return [*lines, canvas.fit(" ".join(rest), width, size=size)] if rest else lines


