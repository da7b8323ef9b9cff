# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Gradient norms as group of parameters x rank, of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from dtscope_jupyter.view.scene.select import where
from dtscope_jupyter.view.text import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

    from dtscope_jupyter.view.scene.matrix import Flags, Reals

_OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Gradients:
    """`norms[i, j]`: L2 norm of the gradients of `groups[i]` on `ranks[j]` in `step`, `which` averaging over ranks; 0 where not `seen`."""

    step: int
    groups: list[str]
    ranks: list[int]
    norms: Reals
    seen: Flags
    which: str
    first_ready: str | None
    last_ready: str | None
    apart_ms: float

    @property
    def order(self) -> str:
        """Which group was ready first and which last; empty where that is not known."""
        if not self.first_ready or self.first_ready == self.last_ready:
            return ""
        return f"ready first {self.first_ready}, last {self.last_ready}, {duration(self.apart_ms)} apart"


def gradients(tables: Mapping[str, pa.Table], near: int | None = None, rows: int = 8) -> Gradients | None:
    """At most `rows` groups, each norm the root of the sum of its squares; None where no norm was recorded.

    Of the first step from `near` on that has norms, else of the last.
    """
    table = tables["gradients"]
    column, which = ("local_norm", "before") if table["local_norm"].null_count < len(table) else ("synced_norm", "after")
    table = table.filter(pc.is_valid(table[column]))
    if not len(table):
        return None
    step = _step(table, near)
    frame = where(table, step=step).select(["rank", "parameter_id", "ready_ns", column]).to_pandas()
    names = _names(tables["parameters"])
    groups = _grouped([names.get(i, f"parameter {i}") for i in sorted(frame["parameter_id"].unique())], rows)
    frame["name"] = [names.get(i, f"parameter {i}") for i in frame["parameter_id"]]
    shown, ranks = list(dict.fromkeys(groups.values())), sorted(frame["rank"].unique().tolist())
    at = frame["name"].map(groups).map(shown.index).to_numpy(int), np.searchsorted(ranks, frame["rank"])
    squares, seen = np.zeros((len(shown), len(ranks))), np.zeros((len(shown), len(ranks)), bool)
    with np.errstate(over="ignore"):
        np.add.at(squares, at, frame[column].to_numpy(float) ** 2)
    seen[at] = True
    return Gradients(step, shown, ranks, np.sqrt(squares), seen, which, *_ready(frame))


def _step(table: pa.Table, near: int | None) -> int:
    later = [] if near is None else table["step"].filter(pc.greater_equal(table["step"], near))
    return int(pc.min(later).as_py() if len(later) else pc.max(table["step"]).as_py())


def _names(parameters: pa.Table) -> dict[int, str]:
    return dict(zip(parameters["parameter_id"].to_pylist(), parameters["parameter"].to_pylist(), strict=True))


def _grouped(names: list[str], rows: int) -> dict[str, str]:
    """Each name's group: itself, else its module, else an ever shorter beginning, until they are few enough."""
    depth = max((name.count(".") + 1 for name in names), default=1)
    for kept in range(depth, 0, -1):
        groups = {name: ".".join(name.split(".")[:kept]) for name in names}
        if len(set(groups.values())) <= rows:
            return groups
    order = list(dict.fromkeys(name.split(".", 1)[0] for name in names))
    return {name: first if (first := name.split(".", 1)[0]) in order[: rows - 1] else _OTHERS for name in names}


def _ready(frame: pd.DataFrame) -> tuple[str | None, str | None, float]:
    known = frame.dropna(subset=["ready_ns"])
    if not len(known):
        return None, None, float("nan")
    offset = known["ready_ns"].astype("int64") - known.groupby("rank")["ready_ns"].transform("min").astype("int64")
    order = offset.groupby(known["name"]).median().sort_values(kind="stable")
    return str(order.index[0]), str(order.index[-1]), float(order.iloc[-1] - order.iloc[0]) / 1e6
