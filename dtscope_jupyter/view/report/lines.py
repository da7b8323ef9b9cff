# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The report as text: the same sentence, numbers and findings as in the picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from dtscope_jupyter.view.scene.choose import telling_ranks
from dtscope_jupyter.view.scene.words import caption, checks, headline, unsure
from dtscope_jupyter.view.text import UNKNOWN, column, count, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dtscope_jupyter.view.scene.build import Scene

_RANKS = 16
_HEADS = {
    "step_ms": "step ms",
    "compute_ms": "compute ms",
    "comm_ms": "comm ms",
    "exposed_ms": "exposed ms",
    "overlap_ratio": "overlap",
    "wait_ms": "wait ms",
    "times_last": "times last",
}
_CAPTION = "mean of a step; wait is summed over collectives, which may overlap"
_MARKS = {"info": "i", "warning": "!", "critical": "!!"}


def text(scene: Scene, name: str, about: str, source: str) -> str:
    """Head, sentence, table of ranks, findings, checks, and where the run lies."""
    sentence, detail, _ = headline(scene)
    said = "\n".join(line for line in (sentence, detail) if line)
    parts = [f"{name}: {about}", said, _numbers(scene), _rest(scene), source]
    return "\n\n".join(part for part in parts if part)


def subtitle(tables: Mapping[str, pa.Table], scene: Scene, world_size: int) -> str:
    """Ranks, devices, backend and steps: 4 ranks · 4 × NVIDIA H200 · nccl · 3 steps."""
    present = len(scene.ranks)
    parts = [count(present, "rank") if world_size <= present else f"{present} of {world_size} ranks"]
    devices = tables["devices"].select(["rank", "name"]).group_by(["rank", "name"]).aggregate([])
    devices = devices.filter(pc.is_valid(devices["name"]))
    names = sorted(set(devices["name"].to_pylist()))
    if len(names) == 1:
        parts.append(f"{len(devices)} × {names[0]}" if len(devices) > 1 else names[0])
    parts.extend(sorted(set(pc.drop_null(tables["groups"]["backend"]).to_pylist()) - {"undefined"}))
    if scene.exposed.steps:
        parts.append(count(len(scene.exposed.steps), "step"))
    return " · ".join(parts)


def shown_path(path: Path) -> str:
    """The path as the user would type it: relative to the current folder where it is below it, else its last part."""
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _numbers(scene: Scene) -> str:
    numbers = scene.numbers
    if not len(numbers):
        return ""
    kept = telling_ranks([int(r) for r in numbers.index], scene.blamed, numbers["exposed_ms"].tolist(), _RANKS)
    shown = numbers.loc[kept]
    cells = [_cells(name, shown[name].tolist()) for name in _HEADS]
    rows = [[str(rank), *(values[i] for values in cells)] for i, rank in enumerate(kept)]
    more = f"\nand {len(numbers) - len(kept)} more ranks" if len(kept) < len(numbers) else ""
    return table(["rank", *_HEADS.values()], rows) + more + f"\n{_caption(scene)}"


def _caption(scene: Scene) -> str:
    said = caption(scene) if scene.exposed.estimated.any() or scene.exposed.partly else _CAPTION
    return f"{said}; {unsure(scene)} between hosts" if unsure(scene) else said


def _cells(name: str, values: list[float]) -> list[str]:
    decimals = {"times_last": 0, "overlap_ratio": 2}.get(name)
    if decimals is None:
        return column(values)
    return [f"{value:.{decimals}f}" if math.isfinite(value) else UNKNOWN for value in values]


def _rest(scene: Scene) -> str:
    lines = [f"{_MARKS[f.severity]} {f.sentence}" for f in (scene.findings or [])[1:]]
    lines += [f"{'ok' if good else '!!'} {words}" for good, words in checks(scene)]
    watched = str(scene.observer)
    return "\n".join([*lines, *([watched] if watched else [])])
