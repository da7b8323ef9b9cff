# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom in each collective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis.clocks import aligned
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, codes, ints, texts
from dtscope_jupyter.analysis.keys import columns_of, keys_of
from dtscope_jupyter.analysis.lines import Groups
from dtscope_jupyter.analysis.pairing import Paired, identities, paired
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

BY = ("collective", "rank", "step", "process_group", "operation", "phase", "bucket")
_TEXT = {"process_group", "operation", "phase"}


@dataclass(frozen=True, slots=True)
class Waits:
    """Every rank's part in every collective that at least two ranks were seen in, on one clock.

    `rows` is the table, `index` their places in `collectives`, `rest` the places of rows that nobody is known to share;
    `collective` numbers the collectives; start, end, wait and transfer are in ns, the last
    the same in all rows of a collective; `last` marks the rank that began last.
    """

    rows: pa.Table
    index: Ints
    rest: Ints
    collective: Ints
    count: int
    start: Ints
    end: Ints
    wait: Ints
    transfer: Ints
    last: Ints
    ranks: Ints
    unpaired: list[str]
    uncertainty: int


def timed(tables: Tables) -> Waits:
    """Wait = latest start over ranks - own start; transfer = shortest duration over ranks."""
    both = paired(tables)
    start, end, uncertainty = aligned(tables, both)
    keep = (start != NONE) & (end != NONE) & (end >= start)
    seen = np.bincount(both.of_row[keep], minlength=both.count)
    unpaired = both.unpaired + _partly(tables, both, keep, seen)
    keep &= seen[both.of_row] > 1
    place = np.cumsum(seen > 1) - 1
    rows, collective = both.rows.filter(pa.array(keep)), place[both.of_row[keep]]
    index, rest = both.index[keep], np.concatenate((both.rest, both.index[seen[both.of_row] < 2]))  # noqa: PLR2004
    start, end, count = start[keep], end[keep], int((seen > 1).sum())
    latest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest, collective, start)
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, collective, end - start)
    wait = latest[collective] - start
    last = np.full(count, np.iinfo(np.int64).max)
    at_end = wait == 0
    np.minimum.at(last, collective[at_end], ints(rows, "rank")[at_end])
    ranks = seen[seen > 1]
    own = (start, end, wait, shortest[collective], last[collective])
    return Waits(rows, index, rest, collective, count, *own, ranks, unpaired, uncertainty)


def _partly(tables: Tables, both: Paired, keep: Bools, seen: Ints) -> list[str]:
    """In words, how many collectives of each group were timed on some of its ranks only."""
    group, names = identities(both.rows, tables["groups"])
    members = Groups.by((group[keep], ints(both.rows, "rank")[keep]))
    size = np.bincount(members.keys[0], minlength=len(names))
    of_collective = np.zeros(both.count, np.int64)
    of_collective[both.of_row] = group
    short = np.bincount(of_collective[(seen > 0) & (seen < size[of_collective])], minlength=len(names))
    lacking = np.flatnonzero(short).tolist()
    return [f"process group {names[one]}: {short[one]} collectives not seen on all of its {size[one]} ranks" for one in lacking]


def waits(tables: Tables, by: str | Sequence[str] = "rank", convention: str | None = None) -> pd.DataFrame:
    """What each rank waited for the others, and how long the transfers themselves took.

    wait of rank r in a collective = latest start over ranks - start of r; transfer = shortest duration over
    ranks (the TensorBoard plugin's data transfer time, TraceLens'). Sends and receives have neither. A collective that only
    one rank was seen in is left out. Times of several hosts are brought to one clock first, see `clocks.aligned`.

    Args:
        tables: The run's tables.
        by: One or several of rank, step, process_group, operation, phase, bucket: sums over collectives, with
            times_last = number of collectives in which the row's rank began last; without "rank" the milliseconds are
            means over the ranks. "collective": a row a collective, with the rank that was last.
        convention: None, or "tensorboard" for the plugin's waits (rank and step only), see `conventions.waits`.

    Returns:
        `by`, wait_ms, transfer_ms, times_last, collectives, uncertainty_ms (of wait_ms: as many times the clocks' as there are
        collectives; 0 where all ranks share a clock); by="collective": step, process_group, seq, operation,
        bytes, ranks, last_rank, wait_ms (the longest), mean_wait_ms, transfer_ms, start_ns, end_ns, uncertainty_ms.
        `attrs["unpaired"]` lists in words what could not be paired, `attrs["uncertainty_ms"]` how far clocks may be off.

    Raises:
        DtscopeError: An unknown `by` or convention.
    """
    keys = keys_of(by, BY)
    found = timed(tables)
    if convention is not None:
        from dtscope_jupyter.analysis import conventions

        conventions.check(convention, ("tensorboard",))
        return conventions.waits(found, keys)
    uncertainty = found.uncertainty / MS
    frame = _each(found, uncertainty) if keys == ("collective",) else _grouped(tables, found, keys)
    if keys != ("collective",):
        frame["uncertainty_ms"] = frame["collectives"] * uncertainty
    frame.attrs = {"unpaired": found.unpaired, "uncertainty_ms": uncertainty}
    return frame


def _grouped(tables: Tables, found: Waits, keys: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    rank = ints(found.rows, "rank")
    columns = columns_of(found.rows, [key for key in keys if key != "collective"])
    if "collective" in keys:
        columns["collective"] = found.collective
    frame = pd.DataFrame(columns | {"_rank": rank, "wait_ms": found.wait, "transfer_ms": found.transfer, "times_last": found.last == rank})
    frame["collectives"] = found.collective
    groups = frame.groupby(list(keys), dropna=False, sort=True)
    done = groups.agg(
        wait_ms=("wait_ms", "sum"), transfer_ms=("transfer_ms", "sum"), times_last=("times_last", "sum"),
        collectives=("collectives", "nunique"), ranks=("_rank", "nunique"),
    )
    ranks = done.pop("ranks")
    done["wait_ms"], done["transfer_ms"] = done["wait_ms"] / MS, done["transfer_ms"] / MS
    if "rank" not in keys:
        done["wait_ms"], done["transfer_ms"] = done["wait_ms"] / ranks, done["transfer_ms"] / ranks
    return _with_all_ranks(tables, done.reset_index(), keys)


def _with_all_ranks(tables: Tables, frame: pd.DataFrame, keys: tuple[str, ...]) -> pd.DataFrame:
    """Plain integers where nothing is missing; by rank alone, ranks without a pair are shown, with NaN."""
    import pandas as pd

    if keys == ("rank",):
        ranks = np.unique(np.concatenate([ints(tables[name], "rank") for name in ("steps", "collectives", "spans")]))
        frame = pd.DataFrame({"rank": ranks}).merge(frame.astype({"rank": np.int64}), on="rank", how="left")
        frame[["times_last", "collectives"]] = frame[["times_last", "collectives"]].fillna(0)
    whole = {key: np.int64 for key in keys if key not in _TEXT and not frame[key].isna().any()}
    return frame.astype(whole | {"times_last": np.int64, "collectives": np.int64})


def _each(found: Waits, uncertainty: float) -> pd.DataFrame:
    import pandas as pd

    first = np.unique(found.collective, return_index=True)[1]
    rows = found.rows.take(pa.array(first))
    longest, latest_end, begun = (np.full(found.count, edge, np.int64) for edge in (0, NONE, np.iinfo(np.int64).max))
    np.maximum.at(longest, found.collective, found.wait)
    np.maximum.at(latest_end, found.collective, found.end)
    np.minimum.at(begun, found.collective, found.start)
    frame = pd.DataFrame({name: texts(*codes(rows, name)) for name in ("process_group", "operation")})
    for name in ("step", "seq", "bytes"):
        column = pd.array(ints(rows, name), dtype="Int64")
        column[ints(rows, name) == NONE] = pd.NA
        frame[name] = column
    mean = np.bincount(found.collective, found.wait, found.count) / found.ranks
    frame = frame[["step", "process_group", "seq", "operation", "bytes"]].assign(
        ranks=found.ranks, last_rank=found.last[first], wait_ms=longest / MS, mean_wait_ms=mean / MS,
        transfer_ms=found.transfer[first] / MS, start_ns=begun, end_ns=latest_end, uncertainty_ms=uncertainty,
    )
    return frame.sort_values(["start_ns", "process_group"], kind="stable", ignore_index=True)
