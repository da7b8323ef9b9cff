# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the traces that were opened together are of one job: findings of several jobs side by side say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from dtscope_jupyter.ingest import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.ingest.part import Part

NAME = "several_jobs"
"""Name of the note."""


def notes(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """A warning where folders hold traces of the same rank by different processes; [] where one job explains all.

    Windows of one process share its training thread, whose number the system gave; another job's has another.
    """
    by_rank: dict[int, list[Part]] = {}
    for part in parts:
        if "spans" in part.tables:
            by_rank.setdefault(part.rank, []).append(part)
    if not any(_strangers(found) for found in by_rank.values()):
        return []
    folders = {part.path.parent for found in by_rank.values() for part in found}
    text = f"traces of several jobs ({len(folders)} folders) were opened as one run; open one folder for its findings"
    return [rows.note("warning", NAME, text, value=float(len(folders)))]


def _strangers(parts: list[Part]) -> bool:
    """Whether two folders hold traces of one rank that share no thread."""
    if len({part.path.parent for part in parts}) == 1:
        return False
    threads = [(part.path.parent, _threads(part)) for part in parts]
    return any(
        mine and theirs and folder != other and mine.isdisjoint(theirs)
        for place, (folder, mine) in enumerate(threads)
        for other, theirs in threads[:place]
    )


def _threads(part: Part) -> set[int]:
    return set(pc.unique(part.tables["spans"]["thread"]).drop_null().to_pylist())
