# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What watching cost, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from dtscope_jupyter.view.scene.select import where
from dtscope_jupyter.view.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Observer:
    """`share` of a step that observing takes, as the ranks measured it; `lost` rows and blocks that are not there."""

    share: float | None
    lost: int

    def __str__(self) -> str:
        cost = [] if self.share is None else [f"observer {100 * self.share:.2g} %"]
        lost = [f"{count(self.lost, 'row')} lost"] if self.lost else ["no row lost"] if cost else []
        return " · ".join([*cost, *lost])


def observer(tables: Mapping[str, pa.Table]) -> Observer:
    """From the notes: the median share, and the sum of what was dropped, thinned or damaged."""
    notes = tables["notes"]
    shares = where(notes, kind="observer", name="cost_ratio")["value"].drop_null()
    lost = pc.sum(where(notes, kind=["dropped", "thinned", "damaged"])["value"]).as_py() or 0
    share = pc.approximate_median(shares).as_py() if len(shares) else None
    return Observer(share, int(lost))
