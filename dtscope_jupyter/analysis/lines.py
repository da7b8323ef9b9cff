# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Interval arithmetic on very many sets at once: each group of rows is a time line of its own.

The lines are laid end to end on one axis, so that a single pass over sorted arrays serves all of them.
All lengths are exact int64 nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter import intervals

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints


@dataclass(frozen=True, slots=True)
class Axis:
    """Where each line lies: a time t of line g is at `t + shift[g]`, from `begin[g]` on; lines don't touch."""

    shift: Ints
    begin: Ints

    @classmethod
    def of(cls, count: int, *parts: tuple[Ints, Ints, Ints]) -> Axis:
        """The axis of `count` lines that hold all intervals of the parts, each (line, starts, ends)."""
        low = np.full(count, np.iinfo(np.int64).max)
        high = np.full(count, np.iinfo(np.int64).min)
        for line, starts, ends in parts:
            np.minimum.at(low, line, np.minimum(starts, ends))
            np.maximum.at(high, line, np.maximum(starts, ends))
        empty = low > high
        low[empty], high[empty] = 0, 0
        begin = np.zeros(count, np.int64)
        np.cumsum((high - low + 1)[:-1], out=begin[1:])
        return cls(begin - low, begin)

    def union(self, line: Ints, starts: Ints, ends: Ints) -> intervals.Set:
        """The set that the intervals cover on each line, on the axis."""
        shift = self.shift[line]
        return intervals.union(starts + shift, ends + shift)

    def line(self, positions: Ints) -> Ints:
        """The line on which each position of the axis lies."""
        return np.searchsorted(self.begin, positions, side="right") - 1

    def lengths(self, covered: intervals.Set) -> Ints:
        """Length of the set on each line."""
        return total(self.line(covered[0]), covered[1] - covered[0], len(self.begin))


@dataclass(frozen=True, slots=True)
class Covered:
    """A set on an axis, ready to be asked how much of an interval it covers."""

    starts: Ints
    ends: Ints
    before: Ints

    @classmethod
    def of(cls, covered: intervals.Set) -> Covered:
        """Prepares a set."""
        starts, ends = covered
        return cls(starts, ends, np.concatenate((np.zeros(1, np.int64), np.cumsum(ends - starts))))

    def up_to(self, at: Ints) -> Ints:
        """Length of the set left of each position."""
        if not len(self.starts):
            return np.zeros(len(at), np.int64)
        count = np.searchsorted(self.starts, at, side="left")
        beyond = np.maximum(self.ends[np.maximum(count - 1, 0)] - at, 0)
        return self.before[count] - np.where(count > 0, beyond, 0)

    def within(self, starts: Ints, ends: Ints) -> Ints:
        """Length of the set inside each interval."""
        return self.up_to(ends) - self.up_to(starts)


def total(line: Ints, lengths: Ints, count: int) -> Ints:
    """Exact sum of the lengths of each line."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, line, lengths)
    return sums


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows told apart by the values of some key columns, in the order of those values."""

    of_row: Ints
    keys: tuple[Ints, ...]

    @property
    def count(self) -> int:
        """Number of distinct groups."""
        return len(self.keys[0])

    @classmethod
    def by(cls, columns: tuple[Ints, ...]) -> Groups:
        """Groups rows by one or more integer columns of equal length."""
        of_row = np.zeros(len(columns[0]), np.int64)
        for column in columns:
            values, place = np.unique(column, return_inverse=True)
            of_row = np.unique(of_row * max(len(values), 1) + place, return_inverse=True)[1]
        first = np.unique(of_row, return_index=True)[1]
        return cls(of_row, tuple(column[first] for column in columns))
