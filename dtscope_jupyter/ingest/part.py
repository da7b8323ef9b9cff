# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What one file gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.ingest.rows import Tables


@dataclass(slots=True)
class Part:
    """Tables of one file, only those that it tells of.

    `rank_given`: whether the file or its name told the rank; `first_ns`, `last_ns`: the time it covers.
    """

    path: Path
    tables: Tables
    rank: int
    rank_given: bool = True
    world_size: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)
