# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Exact arithmetic on sets of half-open intervals, as int64 arrays of starts and ends.

Used by the rank (a step's overlap as it closes) and by the analysis (everything else), so that both
mean the same. A *set* is sorted, disjoint and without empty intervals; `union` makes one.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Set: TypeAlias = tuple[Ints, Ints]


def union(starts: Ints, ends: Ints) -> Set:
    """The set covered by any of the intervals; empty and negative ones count for nothing."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.ones(len(starts), dtype=bool)
    first[1:] = starts[1:] > reach[:-1]
    last = np.append(first[1:], True)
    return starts[first], reach[last]


def total(a: Set) -> int:
    """Length of a set."""
    return int((a[1] - a[0]).sum())


def intersection(a: Set, b: Set) -> Set:
    """What both sets cover."""
    return _covered(a, b, 2)


def difference(a: Set, b: Set) -> Set:
    """What `a` covers and `b` does not."""
    edges = np.concatenate((a[0], a[1], b[0], b[1]))
    in_a = np.concatenate((np.ones_like(a[0]), -np.ones_like(a[1]), np.zeros_like(b[0]), np.zeros_like(b[1])))
    in_b = np.concatenate((np.zeros_like(a[0]), np.zeros_like(a[1]), np.ones_like(b[0]), -np.ones_like(b[1])))
    order = np.argsort(edges, kind="stable")
    edges, inside = edges[order], (np.cumsum(in_a[order]) == 1) & (np.cumsum(in_b[order]) == 0)
    return _runs(edges, inside)


def _covered(a: Set, b: Set, depth: int) -> Set:
    edges = np.concatenate((a[0], b[0], a[1], b[1]))
    change = np.concatenate((np.ones(len(a[0]) + len(b[0]), np.int64), -np.ones(len(a[1]) + len(b[1]), np.int64)))
    order = np.argsort(edges, kind="stable")
    edges, inside = edges[order], np.cumsum(change[order]) >= depth
    return _runs(edges, inside)


def _runs(edges: Ints, inside: npt.NDArray[np.bool_]) -> Set:
    if not len(edges):
        return edges, edges
    return union(edges[:-1][inside[:-1]], edges[1:][inside[:-1]])
