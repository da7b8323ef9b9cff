# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How much of the communication is hidden behind computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.analysis.activity import KEYS, SOURCES, Activity, Events, activity
from dtscope_jupyter.analysis.columns import NONE, Ints, texts
from dtscope_jupyter.analysis.keys import keys_of
from dtscope_jupyter.analysis.lines import Axis, Covered, Groups, total
from dtscope_jupyter.analysis.recorded import LENGTHS, MS, Recorded, bits_of, outdone

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import pyarrow as pa

    from dtscope_jupyter.analysis.activity import Tables

BY = ("rank", "step", *KEYS)
ESTIMATE = "estimate"


def overlap(tables: Tables, by: str | Sequence[str] = "rank", convention: str | None = None) -> pd.DataFrame:
    """Communication hidden and exposed, a row a group.

    comm = union of the group's communication; compute = union of the rank's computation, of the row's step
    and phase where `by` has them (a recorded step's phases: `phases`); overlap = |comm and any compute of the rank|;
    exposed = comm - overlap; overlap_ratio = overlap / comm, NaN without communication. Without "rank" in `by`, the milliseconds are
    means over the ranks and the ratio is that of the means. (Sources: HolisticTraceAnalysis' ratio, per
    rank; the split per step of the TensorBoard plugin; `activity` says what counts as comm and compute.)

    Steps in which a rank only counted its collectives have exposed_ms alone, as the rank measured it, and `source` "estimate";
    the rest of the row is NaN. In a row of several steps or ranks they count only where nothing better is there, so that all
    figures of a row are of the same steps; `attrs["estimated_steps"]` says how many steps were left out that way.

    Args:
        tables: The run's tables.
        by: One or several of rank, step, process_group, operation, phase.
        convention: None, "hta" or "tensorboard", see `conventions`.

    Returns:
        Columns `by`, comm_ms, compute_ms, overlap_ms, exposed_ms, overlap_ratio, source (profiler, event, host,
        flight_recorder, several of them, or estimate).

    Raises:
        DtscopeError: An unknown `by` or convention.
    """
    keys = keys_of(by, BY)
    if convention is not None:
        from dtscope_jupyter.analysis import conventions

        return conventions.overlap(tables, keys, convention)
    return overlap_of(activity(tables, phases="phase" in keys), keys, tables["steps"])


def overlap_of(found: Activity, keys: tuple[str, ...], steps: pa.Table) -> pd.DataFrame:
    """As `overlap`, over an activity and the steps whose figures the ranks themselves took."""
    import pandas as pd

    inner = ("rank", *(key for key in keys if key != "rank"))
    frames, estimated = [], 0
    if set(inner) <= {"rank", "step"}:
        recorded = Recorded.of(steps, found)
        found, estimated = recorded.others(found), len(recorded.estimated)
        frames = recorded.frames(inner)
    frames.append(_grouped(found, inner))
    filled = [frame for frame in frames if len(frame)] or frames[-1:]
    done = _finished(pd.concat(filled, ignore_index=True) if len(filled) > 1 else filled[0], keys)
    left = estimated if len(filled) > 1 and not (done["source"] == ESTIMATE).any() else 0
    done.attrs = {"estimated_steps": left}
    return done


def of_timed_steps(frame: pd.DataFrame, by_step: pd.DataFrame) -> pd.DataFrame:
    """The rows, by rank and step, of the steps whose communication is wholly known; `by_step` is the overlap by rank and step.

    In the others a rank may have recorded some collectives, but not those of DDP.
    """
    if not (by_step["source"] == ESTIMATE).any():
        return frame
    known = by_step.loc[by_step["source"] != ESTIMATE, ["rank", "step"]]
    return frame.dropna(subset=["step"]).astype({"step": np.int64}).merge(known, on=["rank", "step"])


def _grouped(found: Activity, inner: tuple[str, ...]) -> pd.DataFrame:
    """A row a group and rank: its keys, comm, compute, overlap in ns, and its sources as bits."""
    comm, compute = found.comm, found.compute
    if "step" in inner:
        comm, compute = comm.where(comm.step != NONE), compute.where(compute.step != NONE)
    near = tuple(key for key in inner if key in {"rank", "step"} or (key == "phase" and (found.compute.keys[key] >= 0).any()))
    outer = Groups.by(tuple(np.concatenate((comm.column(key), compute.column(key))) for key in near))
    of_comm, of_compute = outer.of_row[: len(comm)], outer.of_row[len(comm) :]
    finer = tuple(key for key in inner if key not in near)
    groups = Groups.by((of_comm, *(comm.column(key) for key in finer))) if finer else Groups(of_comm, (np.arange(outer.count),))
    parent = groups.keys[0]
    lengths, overlapped = _lengths(comm, found.compute, groups)
    axis = Axis.of(outer.count, (of_compute, compute.start, compute.end))
    computed = axis.lengths(axis.union(of_compute, compute.start, compute.end))[parent]
    keys = dict(zip(near, (column[parent] for column in outer.keys), strict=True))
    keys |= dict(zip(finer, groups.keys[1:], strict=True))
    bits = bits_of(groups.of_row, comm.source, groups.count)
    bits |= bits_of(of_compute, compute.source, outer.count)[parent]
    return _frame(comm, {key: keys[key] for key in inner}, (lengths, computed, overlapped), bits)


def _lengths(comm: Events, compute: Events, groups: Groups) -> tuple[Ints, Ints]:
    """Of each group: length of its communication, and of the part during which its rank computes."""
    ranks = Groups.by((np.concatenate((comm.rank, compute.rank)),))
    of_comm, of_compute = ranks.of_row[: len(comm)], ranks.of_row[len(comm) :]
    home = np.zeros(groups.count, np.int64)
    home[groups.of_row] = of_comm
    axis = Axis.of(groups.count, (groups.of_row, comm.start, comm.end))
    united = axis.union(groups.of_row, comm.start, comm.end)
    line = axis.line(united[0])
    length = total(line, united[1] - united[0], groups.count)
    starts, ends = united[0] - axis.shift[line], united[1] - axis.shift[line]
    rank = home[line]
    both = Axis.of(ranks.count, (of_compute, compute.start, compute.end), (rank, starts, ends))
    busy = Covered.of(both.union(of_compute, compute.start, compute.end))
    shift = both.shift[rank]
    return length, total(line, busy.within(starts + shift, ends + shift), groups.count)


def _frame(comm: Events, keys: dict[str, Ints], lengths: tuple[Ints, Ints, Ints], bits: Ints) -> pd.DataFrame:
    import pandas as pd

    shown = {key: texts(codes, comm.names[key]) if key in KEYS else codes for key, codes in keys.items()}
    named = dict(zip(LENGTHS, (*lengths, lengths[0] - lengths[2]), strict=True))
    return pd.DataFrame(shown | named | {"bits": bits, "estimated": np.zeros(len(bits), bool)})


def _finished(frame: pd.DataFrame, keys: tuple[str, ...]) -> pd.DataFrame:
    """Sums rows of one rank, takes the mean over ranks where they are no key, and derives the rest."""
    import pandas as pd

    frame = _summed(frame, keys)
    lengths = {f"{name}_ms": frame[name].to_numpy() / MS for name in LENGTHS}
    comm = lengths["comm_ms"]
    ratio = np.divide(lengths["overlap_ms"], comm, out=np.full(len(comm), np.nan), where=comm > 0)
    known = np.array([source_text(bits) for bits in range(1 << len(SOURCES))], dtype=object)
    source = np.where(frame["estimated"], ESTIMATE, known[frame["bits"].to_numpy(np.int64)])
    return pd.DataFrame({key: frame[key].array for key in keys} | lengths | {"overlap_ratio": ratio, "source": source})


def _summed(frame: pd.DataFrame, keys: tuple[str, ...]) -> pd.DataFrame:
    if set(keys) == set(frame.columns) - {*LENGTHS, "bits", "estimated"} and not frame.duplicated(list(keys)).any():
        return frame.sort_values(list(keys), kind="stable", ignore_index=True)
    place = frame.groupby(list(keys), dropna=False, sort=True).ngroup()
    frame = frame[~outdone(frame["estimated"].to_numpy(bool), np.asarray(place, np.int64))]
    groups = frame.groupby(list(keys), dropna=False, sort=True)
    sums = groups[list(LENGTHS)].sum(min_count=1)
    if "rank" not in keys:
        sums = sums.div(groups["rank"].nunique(), axis=0)
    bits = np.zeros(len(sums), np.int64)
    np.bitwise_or.at(bits, groups.ngroup().to_numpy(), frame["bits"].to_numpy(np.int64))
    return sums.assign(bits=bits, estimated=groups["estimated"].all()).reset_index()


def source_text(bits: int) -> str:
    """The sources of a set of bits, e.g. "event, profiler"."""
    return ", ".join(sorted(name for place, name in enumerate(SOURCES) if bits >> place & 1))
