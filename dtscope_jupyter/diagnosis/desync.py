# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Desync: ranks that call different collectives at one place, or that hold different synchronised gradients."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.analysis.pairing import P2P
from dtscope_jupyter.diagnosis.finding import Finding, Severity, name_ranks
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

_EVEN = ("all_reduce", "broadcast", "reduce")
"""Operations whose buffers must be alike on all ranks; gathers and scatters may be uneven."""
_TOKEN = 1024
"""A barrier is an all_reduce of a few bytes to some backends; one of more bytes is none, whatever source names it."""
_AHEAD = 8
_ITEM_BYTES = 4
_GLOO_SAYS = ("Received data size doesn't match expected size", "op.preamble.length <= op.nbytes")
_LEAST, _AN_ELEMENT, _PIECE = 1e-5, 1e-9, 2**17
"""Norms of equal gradients that CPUs summed in another order, as one buffer or by parameters, differ in float32 by up to 1.5e-10 of
themselves for each element of what is summed at once, a buffer or a piece of one (measured from 5e4 to 6.5e6); a difference counts beyond
seven times that. Devices sum in trees, whose order matters less than the least tolerance.
"""
ADVICE = {
    "operation": "Make all ranks call the same collective here: look for a condition on the rank around these lines.",
    "shape": "Make the tensors equal on all ranks: look at the batch's remainder and at slices that depend on the rank.",
    "dtype": "Use one dtype on all ranks: look at autocast and at .to() under a condition.",
    "order": "Call the collectives in the same order on all ranks: iterate over lists, not over sets.",
    "values": "Look for parameters changed on these ranks alone, for skipped synchronisation (no_sync) and for ranks not in the group.",
}


@dataclass(frozen=True)
class _Call:
    operation: str
    elements: float
    dtype: str | None
    shape: str | None
    line: str | None

    def key(self) -> tuple[object, ...]:
        """What must be alike."""
        even = self.operation in _EVEN
        return (self.operation, self.dtype, self.elements if even and np.isfinite(self.elements) else None)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.operation, self.dtype, self.shape, self.line and f"({self.line})")))


def find(evidence: Evidence) -> list[Finding]:
    """The first difference of each process group, and the first step in which synchronised gradients differ."""
    calls = _calls(evidence)
    return [*calls, *([] if calls else _last_words(evidence)), *_values(evidence)]


def _last_words(evidence: Evidence) -> list[Finding]:
    """Ranks that gloo ended because what they received has another size than what they had called for; their own rows are lost."""
    notes = evidence.tables["notes"]
    ended = notes.filter(pa.array(columns.is_any(notes, "kind", ("exit",)))).to_pylist()
    words = {row["rank"]: row["text"] for row in ended if any(mark in (row["text"] or "") for mark in _GLOO_SAYS)}
    if not words:
        return []
    ranks = tuple(sorted(words))
    return [Finding(
        kind="desync", cause="shape", ranks=ranks, severity=Severity.CRITICAL, confidence=0.6, cost_ms=0.0, steps=(),
        evidence={"last_words": words}, advice=ADVICE["shape"],
        sentence=f"{name_ranks(ranks)} ended by SIGABRT: gloo received another size than was called for.",
    )]  # fmt: skip


def _calls(evidence: Evidence) -> list[Finding]:
    table = evidence.tables["collectives"]
    code, names = columns.codes(table, "process_group")
    seq = columns.ints(table, "seq")
    first: dict[int, int] = {}
    for row in _differing(table, seq, code).tolist():
        first.setdefault(int(code[row]), int(seq[row]))
    calls = ((group, at, _rows_at(table, (code == group) & (seq >= at) & (seq <= at + _AHEAD))) for group, at in first.items())
    return [_difference(names[group], at, here) for group, at, here in calls if _differ(here, at)]


def _differing(table: pa.Table, seq: Ints, code: Ints) -> Ints:
    """Rows that differ, in what must be alike, from another rank's row at one place, by sequence number.

    Of one source; or of two, which may name the finer operations apart, where one of the calls is open and both are of even buffers,
    or one is a barrier and the other moves more than a barrier does.
    """
    exact = (seq != NONE) & ~columns.is_any(table, "source", ("profiler",)) & ~columns.is_any(table, "operation", P2P)
    rows = np.flatnonzero(exact)
    even = columns.is_any(table, "operation", _EVEN)
    large = columns.is_any(table, "operation", ("barrier",)) | (even & (columns.ints(table, "bytes") > _TOKEN))
    closed = columns.is_any(table, "state", ("completed",))
    alike = _neighbours(table, seq, code, rows, columns.codes(table, "source")[0])
    mixed = np.concatenate([_neighbours(table, seq, code, rows[some[rows]], np.zeros(len(seq), np.int64)) for some in (even, large)])
    mixed = mixed[~closed[mixed].all(axis=1)]
    return np.concatenate((alike[:, 1], mixed[:, 1]))


def _neighbours(table: pa.Table, seq: Ints, code: Ints, rows: Ints, source: Ints) -> Ints:
    """Pairs (n, 2) of rows of different ranks, one sequence number, group and source, whose keys differ."""
    key, rank = _keys(table, rows), columns.ints(table, "rank")[rows]
    order = np.lexsort((rank, source[rows], code[rows], seq[rows]))
    rows, key, rank = rows[order], key[order], rank[order]
    same = np.logical_and.reduce([of[rows][1:] == of[rows][:-1] for of in (seq, code, source)]) & (rank[1:] != rank[:-1])
    chosen = np.flatnonzero(same & (key[1:] != key[:-1]))
    pairs: Ints = np.stack((rows[chosen], rows[chosen + 1]), axis=1)
    return pairs


def _keys(table: pa.Table, rows: Ints) -> Ints:
    """A number for each row, equal where the calls are alike."""
    operation, names = columns.codes(table, "operation")
    even = np.array([name in _EVEN for name in names] + [False])
    size = np.where(even[operation], columns.ints(table, "bytes"), 0)[rows]
    size = np.unique(size, return_inverse=True)[1]
    dtype, dtypes = columns.codes(table, "dtype")
    return (size * (len(names) + 1) + operation[rows] + 1) * (len(dtypes) + 1) + dtype[rows] + 1


def _rows_at(table: pa.Table, chosen: Bools) -> dict[tuple[int, int], _Call]:
    """The calls of the chosen rows by rank and sequence number."""
    rows = table.filter(pa.array(chosen)).select(["rank", "seq", "operation", "bytes", "dtype", "shape", "line"])
    found = {}
    for row in rows.to_pylist():
        size = float("nan") if row["bytes"] is None else float(row["bytes"])
        found[row["rank"], row["seq"]] = _Call(row["operation"], size, row["dtype"], row["shape"], row["line"])
    return found


def _differ(calls: dict[tuple[int, int], _Call], seq: int) -> bool:
    """Whether ranks differ there by the one row that counts of each: a rank's several rows may differ among themselves."""
    return len({call.key() for (_, at), call in calls.items() if at == seq}) > 1


def _difference(group: str, seq: int, calls: dict[tuple[int, int], _Call]) -> Finding:
    here = {rank: call for (rank, at), call in calls.items() if at == seq}
    minority = _minority({rank: call.key() for rank, call in here.items()})
    odd, usual = (
        here[minority[0]],
        next(call for rank, call in here.items() if rank not in minority or call.key() != here[minority[0]].key()),
    )
    cause = _what(calls, seq, minority[0], odd, usual, next(rank for rank, call in here.items() if call is usual))
    unsure = 2 * len(minority) >= len(here)
    return Finding(
        kind="desync",
        cause=cause,
        ranks=minority,
        severity=Severity.CRITICAL,
        confidence=0.7 if unsure else 0.95,
        cost_ms=0.0,
        steps=(),
        evidence={"process_group": group, "seq": seq, "calls": {rank: str(call) for rank, call in here.items()}},
        advice=ADVICE[cause],
        sentence=f"{name_ranks(minority)}: another {cause} than the rest at collective {seq} of process group {group}: "
        f"{odd} against {usual}."
        if not unsure
        else f"{name_ranks(tuple(sorted(here)))} differ in {cause} at collective {seq} of process group {group}: {odd} against {usual}.",
    )


def _what(calls: dict[tuple[int, int], _Call], seq: int, rank: int, odd: _Call, usual: _Call, other: int) -> str:
    ahead = range(seq + 1, seq + 1 + _AHEAD)
    later = {calls[other, at].key() for at in ahead if (other, at) in calls}
    theirs = {calls[rank, at].key() for at in ahead if (rank, at) in calls}
    if odd.key() in later and usual.key() in theirs and sorted(map(str, later | {usual.key()})) == sorted(map(str, theirs | {odd.key()})):
        return "order"
    if odd.operation != usual.operation:
        return "operation"
    return "dtype" if odd.dtype != usual.dtype else "shape"


def _minority(values: dict[int, Any]) -> tuple[int, ...]:
    """Ranks that differ from the most common value; all of them where no value is the most common one."""
    counts = Counter(values.values()).most_common()
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return tuple(sorted(values))
    return tuple(sorted(rank for rank, value in values.items() if value != counts[0][0]))


def _values(evidence: Evidence) -> list[Finding]:
    """Of the groups whose ranks hold the same gradients, the first that differ; not in the last step alone, which may be torn off."""
    norms = evidence.steps.column("synced_norm")
    tolerance = _LEAST if evidence.on_device else tolerance_on_cpu(evidence.tables["collectives"])
    found: list[tuple[int, Ints, Ints]] = []
    for ranks in _replicas(evidence):
        rows = position(evidence.ranks, np.array(ranks))
        apart = np.flatnonzero(_apart(norms[rows], tolerance))
        if len(apart) and apart[0] < len(evidence.steps.ids) - 1:
            found.append((int(apart[0]), rows, apart))
    return [_values_finding(evidence, norms, tolerance, *min(found, key=lambda each: each[0]))] if found else []


def tolerance_on_cpu(table: pa.Table) -> float:
    """By how much of themselves norms of equal gradients may differ on CPUs: by the largest buffer of a backward in `collectives`."""
    sent = columns.is_any(table, "operation", ("all_reduce",)) & columns.is_any(table, "phase", ("backward",))
    elements = np.nanmax(columns.reals(table, "bytes")[sent], initial=0) / _ITEM_BYTES
    return float(np.clip(_AN_ELEMENT * elements, _LEAST, _AN_ELEMENT * _PIECE))


def _values_finding(evidence: Evidence, norms: Reals, tolerance: float, first: int, rows: Ints, apart: Ints) -> Finding:
    shown = {int(evidence.ranks[row]): float(norms[row, first]) for row in rows if np.isfinite(norms[row, first])}
    minority = _minority(_alike(shown, tolerance))
    step = int(evidence.steps.ids[first])
    parameter = _parameter(evidence, step, tolerance)
    equal = [int(one) for one in evidence.steps.ids[:first][np.isfinite(norms[rows, :first]).all(0)]]
    good = equal[-1] if equal else None
    return Finding(
        kind="desync",
        cause="values",
        ranks=minority,
        severity=Severity.CRITICAL,
        confidence=0.9 if 2 * len(minority) < len(shown) else 0.75,
        cost_ms=0.0,
        steps=evidence.step_numbers(apart),
        evidence={
            "step": step,
            "last_equal_step": good,
            "not_before": None if good is None else good + 1,
            "synced_norm": shown,
            "tolerance": tolerance,
            "parameter": parameter,
        },
        advice=ADVICE["values"],
        sentence=f"{name_ranks(minority)}: synchronised gradients differ "
        + ("from each other" if len(minority) == len(shown) else "from the others'")
        + f" {_since(evidence, good, step)}"
        + (f", first seen in {parameter}." if parameter else "."),
    )


def _since(evidence: Evidence, good: int | None, step: int) -> str:
    """When it began, for a sentence: the step, or the interval between the last good look and the first bad one."""
    if good is None:
        return f"since step {step}" + (" or before, the first that was looked at" if step > evidence.steps.ids[0] else "")
    if step == good + 1:
        return f"since step {step}"
    return f"since a step between {good + 1} and {step} (in step {good} they agreed)"


def _alike(values: dict[int, float], tolerance: float) -> dict[int, int]:
    """The values as numbers of groups: what differs by less than the tolerance from the next is one group."""
    order = sorted(values, key=lambda rank: values[rank])
    sizes = np.array([values[rank] for rank in order])
    group = np.concatenate(([0], np.cumsum(np.diff(sizes) > tolerance * np.abs(sizes[1:]))))
    return dict(zip(order, group.tolist(), strict=True))


def _apart(norms: Reals, tolerance: float) -> Bools:
    known = np.where(np.isfinite(norms), norms, np.nan)
    several = np.isfinite(known).sum(0) > 1
    apart = np.zeros(norms.shape[1], dtype=bool)
    low, high = np.nanmin(known[:, several], axis=0), np.nanmax(known[:, several], axis=0)
    apart[several] = high - low > tolerance * np.abs(high)
    return apart


def _replicas(evidence: Evidence) -> list[tuple[int, ...]]:
    """Groups whose members hold the same whole gradients: those that all-reduce in the backward, in a run that scatters none."""
    table = evidence.tables["collectives"]
    if columns.is_any(table, "operation", ("reduce_scatter",)).any() or len(evidence.ranks) < 2:  # noqa: PLR2004
        return []
    elements: dict[str, set[object]] = {}
    parameters = evidence.tables["parameters"]
    for name, size in zip(parameters["parameter"].to_pylist(), parameters["elements"].to_pylist(), strict=True):
        elements.setdefault(name, set()).add(size)
    if any(len(sizes) > 1 for sizes in elements.values()):
        return []
    reduces = columns.is_any(table, "operation", ("all_reduce",)) & columns.is_any(table, "phase", ("backward",))
    code, names = columns.codes(table, "process_group")
    groups = {evidence.members[names[one]] for one in np.unique(code[reduces]).tolist() if one >= 0}
    present = set(evidence.ranks.tolist())
    return [ranks for ranks in sorted(groups) if len(ranks) > 1 and set(ranks) <= present]


def _parameter(evidence: Evidence, step: int, tolerance: float) -> str | None:
    """The first parameter whose synchronised norms differ at the step."""
    table = evidence.tables["gradients"]
    chosen = (columns.ints(table, "step") == step) & np.isfinite(columns.reals(table, "synced_norm"))
    ids, norms = columns.ints(table, "parameter_id")[chosen], columns.reals(table, "synced_norm")[chosen]
    for one in np.unique(ids).tolist():
        own = norms[ids == one]
        if own.max() - own.min() > tolerance * abs(own.max()):
            return parameter_name(evidence, one)
    return None


def parameter_name(evidence: Evidence, parameter_id: int) -> str:
    """Its name in the model, or its number where `parameters` lacks it."""
    table = evidence.tables["parameters"]
    rows = np.flatnonzero(columns.ints(table, "parameter_id") == parameter_id)
    return str(table["parameter"][int(rows[0])]) if len(rows) else f"parameter {parameter_id}"
