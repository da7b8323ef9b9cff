# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels compared across ranks: more of them, or the same ones slower; and how often the host waited for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis import columns as arrow
from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, Reals
from dtscope_jupyter.diagnosis import device
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis.evidence import Evidence

_SAME_COUNT = 0.9
"""Of the extra time, the share that kernels must owe to their length rather than to their number for a slow device."""
_SYNCS_MORE = 3.0
_SYNC_NAMES = ("Synchronize", "item", "_local_scalar_dense")


def more_or_slower(evidence: Evidence, row: int, columns: Ints) -> tuple[str, dict[str, Any]]:
    """`compute` where the rank ran more kernels, `slow_device` where it ran the others' kernels more slowly."""
    slower_clock = device.slower(evidence, row)
    if not evidence.activity.device:
        return ("slow_device" if slower_clock else "compute"), slower_clock
    count, time, names = _by_kernel(evidence, columns)
    usual, length = np.median(np.delete(count, row, 0), axis=0), _median_length(np.delete(count, row, 0), np.delete(time, row, 0))
    own = np.divide(time[row], count[row], out=np.zeros_like(time[row]), where=count[row] > 0)
    extra = (count[row] - usual) * np.where(length > 0, length, own)
    slower = np.minimum(count[row], usual) * (own - length) * (length > 0)
    most = int(np.argmax(time[row] - usual * length))
    details = slower_clock | {
        "extra_kernels_ms": float(extra.sum()),
        "slower_kernels_ms": float(slower.sum()),
        "kernel": names[most],
        "kernel_count": float(count[row, most]),
        "kernel_count_others": float(usual[most]),
        "kernel_ms": float(own[most]),
        "kernel_ms_others": float(length[most]),
    }
    return ("slow_device" if slower_clock or slower.sum() > _SAME_COUNT * (slower.sum() + max(extra.sum(), 0.0)) else "compute"), details


def many_syncs(evidence: Evidence, row: int, columns: Ints) -> float:
    """Synchronisations a step of this rank, by a profiler or by the rank's own hooks, where they are many times the others'; else 0."""
    spans = evidence.tables["spans"]
    name, names = arrow.codes(spans, "name")
    wanted = np.array([any(part in text for part in _SYNC_NAMES) for text in names] + [False])
    rank, chosen = _chosen(evidence, columns, "sync", "spans")
    told, hooked = _chosen(evidence, columns, "host_sync", "host")
    counts = np.maximum(*(np.bincount(of, minlength=len(evidence.ranks)) for of in (rank[chosen & wanted[name]], told[hooked])))
    counts = counts / len(columns)
    rest = float(np.median(np.delete(counts, row)))
    return float(counts[row]) if counts[row] > _SYNCS_MORE * rest + _SYNCS_MORE else 0.0


def _by_kernel(evidence: Evidence, columns: Ints) -> tuple[Reals, Reals, list[str]]:
    """Count and milliseconds a step of each kernel name on each rank (R, K)."""
    spans = evidence.tables["spans"]
    rank, chosen = _chosen(evidence, columns, "compute", "spans")
    name, names = arrow.codes(spans, "name")
    lengths = (arrow.ints(spans, "end_ns") - arrow.ints(spans, "start_ns"))[chosen] / 1e6
    key = rank[chosen] * len(names) + name[chosen]
    shape, size = (len(evidence.ranks), len(names)), len(evidence.ranks) * len(names)
    count = np.bincount(key, minlength=size).reshape(shape) / len(columns)
    return count, np.bincount(key, weights=lengths, minlength=size).reshape(shape) / len(columns), names


def _chosen(evidence: Evidence, columns: Ints, kind: str, table: str) -> tuple[Ints, Bools]:
    rows = evidence.tables[table]
    rank = position(evidence.ranks, arrow.ints(rows, "rank"))
    column = evidence.steps.index(arrow.ints(rows, "step"))
    timed = (arrow.ints(rows, "end_ns") != NONE) & (arrow.ints(rows, "start_ns") != NONE)
    return rank, arrow.is_any(rows, "kind", (kind,)) & np.isin(column, columns) & timed & (rank >= 0)


def _median_length(count: Reals, time: Reals) -> Reals:
    """Median over ranks of a kernel's mean length; 0 where no other rank ran it."""
    length = np.divide(time, count, out=np.full_like(time, np.nan), where=count > 0)
    known = np.isfinite(length).any(0)
    middle = np.zeros(length.shape[1])
    middle[known] = np.nanmedian(length[:, known], axis=0)
    return middle
