# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where each rank's time went: compute, communication, copies, idle and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from dtscope_jupyter.analysis import conventions
from dtscope_jupyter.analysis.activity import Activity, activity, source_codes
from dtscope_jupyter.analysis.columns import ints
from dtscope_jupyter.analysis.idle import IDLE, KERNEL_DELAY_NS, on_device, on_host
from dtscope_jupyter.analysis.keys import keys_of
from dtscope_jupyter.analysis.overlap import ESTIMATE, overlap_of
from dtscope_jupyter.analysis.recorded import MS, outdone
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables
    from dtscope_jupyter.analysis.columns import Ints

BY = ("rank", "step", "phase")
COLUMNS = ("wall_ms", "compute_ms", "comm_ms", "overlap_ms", "exposed_ms", "copy_ms", "idle_ms", *IDLE)


def breakdown(
    tables: Tables, by: str | Sequence[str] = "rank", convention: str | None = None, kernel_delay_ns: int = KERNEL_DELAY_NS,
) -> pd.DataFrame:
    """Splits time into compute + exposed + copy + idle = wall.

    compute, comm, overlap and exposed as in `overlap`. Ranks seen by a profiler alone: wall = last end - first start of the row's
    own kernels, copies and memsets; copy = copies and memsets beside neither compute nor communication; idle = wall without
    any of them. A gap's reason, after HolisticTraceAnalysis, on the device as a whole: host wait where the next kernel was launched
    after the gap began, else kernel wait where the gap is shorter than `kernel_delay_ns`, else other. Recorded ranks: wall =
    the steps, idle = neither compute nor comm, without reason (NaN); several steps are summed, profiled ones by their kernels.
    With phase: a gap belongs to the phase of what runs next, and wall is the sum of the parts. Without rank: means over
    ranks. Steps of which only an estimate of the exposed time is known: as in `overlap`; their idle time is NaN.

    Args:
        tables: The run's tables.
        by: One or several of rank, step, phase.
        convention: "hta" gives HolisticTraceAnalysis' temporal breakdown of the kernels it keeps: rank, idle_ms, compute_ms,
            non_compute_ms = kernel - compute - idle, kernel_ms = last end - first start, and their percentages; "tensorboard" the
            split of the plugin's distributed view, see `conventions`.
        kernel_delay_ns: See above, ns.

    Returns:
        `by`, wall_ms, compute_ms, comm_ms, overlap_ms, exposed_ms, copy_ms, idle_ms, idle_host_ms, idle_kernel_ms,
        idle_other_ms, source.

    Raises:
        DtscopeError: An unknown `by` or convention.
    """
    _check(by)
    keys = keys_of(by, BY)
    if convention is not None:
        conventions.check(convention)
        return conventions.breakdown(tables) if convention == "hta" else conventions.overlap(tables, keys, convention)
    inner = ("rank", *(key for key in keys if key != "rank"))
    found = activity(tables, phases="phase" in keys)
    hosted = np.unique(ints(tables["steps"], "rank")[source_codes(tables["steps"]) > 0])
    parts = [_profiled(tables, _of(found, hosted, among=False), inner, kernel_delay_ns, hosted)]
    if len(hosted):
        steps = ("rank", "step", *(key for key in inner if key == "phase"))
        parts.append(_recorded(tables, _of(found, hosted, among=True), steps, kernel_delay_ns))
    return _summed(parts, keys)


def _check(by: object) -> None:
    wanted = [by] if isinstance(by, str) else list(by) if isinstance(by, (list, tuple)) else []
    alien = [key for key in wanted if key in {"process_group", "operation"}]
    if alien:
        message = f"idle time belongs to no {alien[0]}: breakdown knows by rank, step, phase; overlap, waits and bandwidth know {alien[0]}"
        raise DtscopeError(message)


def _of(found: Activity, ranks: Ints, *, among: bool) -> Activity:
    """The activity of these ranks, or of all others."""
    if not len(ranks) and not among:
        return found
    return Activity(*(part.where(np.isin(part.rank, ranks) == among) for part in (found.comm, found.compute)))


def _profiled(tables: Tables, found: Activity, keys: tuple[str, ...], delay: int, without: Ints) -> pd.DataFrame:
    """Ranks of which a profiler alone tells."""
    spent = on_device(tables["spans"], keys, delay)
    spent = spent[~spent["rank"].isin(without)]
    frame = _merged(overlap_of(found, keys, tables["steps"].slice(0, 0)), spent, keys)
    if "phase" in keys:
        frame["wall_ms"] = frame[["compute_ms", "exposed_ms", "copy_ms", "idle_ms"]].sum(axis=1)
    return frame


def _recorded(tables: Tables, found: Activity, keys: tuple[str, ...], delay: int) -> pd.DataFrame:
    """Ranks that recorded themselves, a row a step: by its kernels where a profiler saw it."""
    import pandas as pd

    shown = overlap_of(found, keys, tables["steps"])
    exact = shown["source"] == "profiler"
    device = _merged(shown[exact], on_device(tables["spans"], keys, delay), keys, how="left")
    host = _merged(shown[~exact], on_host(tables["steps"], found, keys), keys, how="left")
    unknown = host["source"] == ESTIMATE
    host.loc[unknown, ["copy_ms", "idle_ms"]] = np.nan
    return pd.concat([part for part in (device, host) if len(part)] or [host], ignore_index=True)


def _merged(shown: pd.DataFrame, spent: pd.DataFrame, keys: tuple[str, ...], how: Literal["outer", "left"] = "outer") -> pd.DataFrame:
    """Figures of overlap beside what else was spent; where nothing computed or communicated these are 0."""
    frame = shown.merge(spent, on=list(keys), how=how)
    lengths = ["comm_ms", "compute_ms", "overlap_ms", "exposed_ms"]
    alone = frame["source"].isna()
    frame.loc[alone, lengths] = 0.0
    frame["source"] = frame["source"].fillna("profiler")
    if "phase" not in keys:
        rest = frame["wall_ms"] - frame["compute_ms"] - frame["exposed_ms"] - frame["copy_ms"]
        frame["idle_ms"] = (rest.clip(lower=0) * MS).round() / MS
    return frame[[*keys, *COLUMNS, "source"]]


def _summed(parts: list[pd.DataFrame], keys: tuple[str, ...]) -> pd.DataFrame:
    """Sums over what is no key, means over ranks where they are none; NaN where nothing of it is known."""
    import pandas as pd

    frame = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    extra = [key for key in BY if key in frame.columns and key not in keys]
    frame = frame.sort_values(list(keys), kind="stable", ignore_index=True)
    if not extra:
        return frame[[*keys, *COLUMNS, "source"]]
    place = frame.groupby(list(keys), dropna=False, sort=True).ngroup()
    frame = frame[~outdone((frame["source"] == ESTIMATE).to_numpy(bool), np.asarray(place, np.int64))]
    groups = frame.groupby(list(keys), dropna=False, sort=True)
    sums = groups[list(COLUMNS)].sum(min_count=1)
    if "rank" not in keys:
        sums = sums.div(groups["rank"].nunique(), axis=0)
    words = groups["source"].agg(lambda each: ", ".join(sorted({word for one in set(each) for word in one.split(", ")})))
    return sums.assign(source=words).reset_index()
