# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The newest of the jobs whose traces were opened together: findings of several jobs side by side say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from dtscope_jupyter.ingest import rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dtscope_jupyter.ingest.part import Part

_NAMED = 5
NAME = "several_jobs"
"""Name of the note."""


def newest(parts: Sequence[Part]) -> tuple[list[Part], list[dict[str, Any]]]:
    """The parts of the job that ran last, and a warning that names the folders of the others; all parts where one job explains them.

    Folders are of different jobs where they hold traces of the same rank by different processes. Windows of one process share its
    training thread, whose number the system gave; another job's has another. A folder that shows no such clash stays.
    """
    folders: dict[Path, list[Part]] = {}
    for part in parts:
        if "spans" in part.tables:
            folders.setdefault(part.path.parent, []).append(part)
    last = max(folders, key=lambda one: (max(part.last_ns or 0 for part in folders[one]), str(one)), default=None)
    if last is None:
        return list(parts), []
    others = [folder for folder, found in folders.items() if folder != last and _strangers(folders[last], found)]
    if not others:
        return list(parts), []
    names = ", ".join(sorted(folder.name for folder in others)[:_NAMED]) + (" and more" if len(others) > _NAMED else "")
    text = f"traces of {len(others) + 1} jobs lie here: this is the newest, {last.name}; for another open its folder ({names})"
    return [part for part in parts if part.path.parent not in others], [rows.note("warning", NAME, text, value=float(len(others) + 1))]


def _strangers(mine: list[Part], theirs: list[Part]) -> bool:
    """Whether two folders hold traces of one rank that share no thread."""
    pairs = ((_threads(a), _threads(b)) for a in mine for b in theirs if a.rank == b.rank)
    return any(first and second and first.isdisjoint(second) for first, second in pairs)


def _threads(part: Part) -> set[int]:
    return set(pc.unique(part.tables["spans"]["thread"]).drop_null().to_pylist())
