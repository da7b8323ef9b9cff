# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The largest kernels, and how much computation slows down beside communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis import conventions
from dtscope_jupyter.analysis.columns import NONE, Ints, codes, ints, is_any, texts
from dtscope_jupyter.analysis.keys import beside, columns_of, keys_of
from dtscope_jupyter.analysis.lines import Axis, Covered, Groups
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

BY = ("rank", "step", "process_group", "operation", "phase")
_OF_COMM = ("process_group", "operation")
FEWEST = 3
"""Calls beside and alone that a kernel must have before its slowdown is told."""
SPREAD = 0.25
"""Widest spread of the calls alone, 10th to 90th percentile over the median: beyond it the name stands for different work."""


def kernels(tables: Tables, largest: int = 20, by: str | Sequence[str] = ()) -> pd.DataFrame:
    """The names that took the most device time: kernels, copies and memsets.

    total = sum of durations over calls and ranks; share = total / total of all names of its kind (compute, comm, memcpy,
    memset) in the same group of `by`.

    Args:
        tables: The run's tables.
        largest: How many rows, of each group where `by` has keys.
        by: Any of rank, step, process_group, operation, phase: the largest of each such group; none: of the run.

    Returns:
        `by`, kind, name, ranks, calls, total_ms, mean_ms, max_ms, share; largest first.

    Raises:
        DtscopeError: An unknown `by`.
    """
    import pandas as pd

    keys = list(beside(by, BY))
    spans, length = _device_spans(tables["spans"])
    every = list(dict.fromkeys([*keys, "kind", "name", "rank"]))
    frame = pd.DataFrame(columns_of(spans, every)).assign(ms=length / MS, of_rank=ints(spans, "rank"))
    done = frame.groupby([*keys, "kind", "name"], sort=False, dropna=False).agg(
        ranks=("of_rank", "nunique"), calls=("ms", "size"), total_ms=("ms", "sum"), mean_ms=("ms", "mean"), max_ms=("ms", "max"),
    )
    done["share"] = done["total_ms"] / done.groupby([*keys, "kind"], dropna=False)["total_ms"].transform("sum")
    done = done.reset_index().sort_values("total_ms", ascending=False, kind="stable")
    if keys:
        done = done.groupby(keys, dropna=False, sort=False).head(largest).sort_values(keys, kind="stable")
    return done.head(largest * (len(done) if keys else 1)).reset_index(drop=True)


def _device_spans(spans: pa.Table, kinds: tuple[str, ...] = conventions.DEVICE) -> tuple[pa.Table, Ints]:
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    keep = is_any(spans, "kind", kinds) & (start != NONE) & (end >= start)
    return spans.filter(pa.array(keep)), (end - start)[keep]


def slowdown(tables: Tables, largest: int = 20, by: str | Sequence[str] = "rank") -> pd.DataFrame:
    """Compute kernels that run beside communication against the same kernels alone, in the same group of `by`.

    beside: more than half of the call is covered by communication kernels; alone: none of it. slowdown = median duration
    beside / median duration alone, for names with at least `FEWEST` calls of each whose calls alone last about as long as each
    other (`SPREAD`); lost = sum over the calls beside of (duration - median alone), what contention for the device cost.
    With process_group or operation: beside kernels of that group or operation; alone: still of none at all.

    Args:
        tables: The run's tables.
        largest: How many rows.
        by: One or several of rank, step, process_group, operation, phase (the compute kernel's).

    Returns:
        `by`, name, calls_beside, calls_alone, beside_ms, alone_ms (medians), slowdown, lost_ms; most lost first.

    Raises:
        DtscopeError: An unknown `by`.
    """
    asked = keys_of(by, BY)
    spans, length = _device_spans(tables["spans"], ("compute",))
    comm, _ = _device_spans(tables["spans"], ("comm",))
    own = [key for key in asked if key not in _OF_COMM]
    frame = _calls(spans, own).assign(ms=length / MS)
    alone = frame[_covered(spans, comm) == 0]
    import pandas as pd

    parts = []
    for names, some in _each(comm, asked):
        beside_some = frame[_covered(spans, some) * 2 > length]
        parts.append(_named(_against(beside_some, alone, [*own, "name"]), names))

    done = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    done = done.sort_values("lost_ms", ascending=False, kind="stable").head(largest).reset_index(drop=True)
    return done[[*asked, "name", "calls_beside", "calls_alone", "beside_ms", "alone_ms", "slowdown", "lost_ms"]]


def _named(frame: pd.DataFrame, names: dict[str, object]) -> pd.DataFrame:
    for key, value in names.items():
        frame[key] = np.full(len(frame), value, dtype=object)
    return frame


def _calls(spans: pa.Table, keys: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns_of(spans, [*keys, "name"]))


def _each(comm: pa.Table, keys: tuple[str, ...]) -> list[tuple[dict[str, object], pa.Table]]:
    """The communication kernels by group and operation as asked; all of them where neither is, or where there are none."""
    asked = [key for key in keys if key in _OF_COMM]
    if not asked or not len(comm):
        return [(dict.fromkeys(asked), comm)]
    found = [codes(comm, key) for key in asked]
    groups = Groups.by(tuple(code for code, _ in found))
    shown = [texts(column, names) for column, (_, names) in zip(groups.keys, found, strict=True)]
    return [
        (dict(zip(asked, (column[place] for column in shown), strict=True)), comm.filter(pa.array(groups.of_row == place)))
        for place in range(groups.count)
    ]


def _against(beside: pd.DataFrame, alone: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Medians of the calls beside and alone, of the names that tell something."""
    both = beside.groupby(keys, dropna=False)["ms"].agg(calls_beside="size", beside_ms="median", total="sum")
    calls = alone.groupby(keys, dropna=False)["ms"]
    spread = (calls.quantile(0.9) - calls.quantile(0.1)) / calls.median()
    both = both.join(calls.agg(calls_alone="size", alone_ms="median")[spread <= SPREAD], how="inner")
    both = both[(both["calls_beside"] >= FEWEST) & (both["calls_alone"] >= FEWEST)]
    both["slowdown"] = both["beside_ms"] / both["alone_ms"]
    both["lost_ms"] = both.pop("total") - both["calls_beside"] * both["alone_ms"]
    found: pd.DataFrame = both.reset_index()
    return found


def _covered(spans: pa.Table, comm: pa.Table) -> Ints:
    """How much of each span runs beside the communication kernels of its rank, ns."""
    start, end = ints(spans, "start_ns"), ints(spans, "end_ns")
    busy = ints(comm, "start_ns"), ints(comm, "end_ns")
    ranks = Groups.by((np.concatenate((ints(spans, "rank"), ints(comm, "rank"))),))
    mine, theirs = ranks.of_row[: len(spans)], ranks.of_row[len(spans) :]
    axis = Axis.of(ranks.count, (mine, start, end), (theirs, *busy))
    shift = axis.shift[mine]
    return Covered.of(axis.union(theirs, *busy)).within(start + shift, end + shift)
