# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Arrow columns as numpy arrays, without a Python object a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import arrays

if TYPE_CHECKING:
    from collections.abc import Iterable

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Reals: TypeAlias = npt.NDArray[np.float64]

NONE = -(2**62)
"""Stands for null in an array of integers; no time, step or rank is ever that."""


def ints(table: pa.Table, name: str) -> Ints:
    """An integer column as int64, `NONE` where null."""
    return arrays.to_numpy(table.column(name), NONE).astype(np.int64, copy=False)


def reals(table: pa.Table, name: str) -> Reals:
    """A number column as float64, NaN where null."""
    return arrays.to_numpy(table.column(name), np.nan).astype(np.float64, copy=False)


def codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A text column as codes into a list of its distinct values; -1 where null."""
    column = table.column(name)
    if not len(column):
        return np.zeros(0, np.int64), []
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column, memory_pool=pa.system_memory_pool())
    place: dict[str, int] = {}
    parts, known, new = [], None, np.full(1, -1)
    for chunk in column.chunks:
        if known is None or not chunk.dictionary.equals(known):
            known, new = chunk.dictionary, _numbered(chunk.dictionary.to_pylist(), place)
        indices = arrays.to_numpy(pa.chunked_array([chunk.indices]), -1)
        parts.append(new[indices])
    return np.concatenate(parts), list(place)


def _numbered(values: list[str | None], place: dict[str, int]) -> Ints:
    """The code of each value of a dictionary, new ones numbered on in `place`; a null value has -1, as has what is behind the last.

    Arrow's own `unify_dictionaries` reserves 6 MiB, as do its pool's first bytes.
    """
    return np.array([-1 if value is None else place.setdefault(value, len(place)) for value in values] + [-1], np.int64)


def distinct(values: Ints) -> Ints:
    """The distinct values in order; unlike numpy's `unique` quick where most of many values differ and are nearly in order."""
    ordered = np.sort(values, kind="stable")
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def among(values: Ints, wanted: Ints) -> Bools:
    """Which values are among the wanted ones, as numpy's `isin`, and as `distinct` quick."""
    known = distinct(wanted)
    if not len(known):
        return np.zeros(len(values), bool)
    found: Bools = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def filtered(table: pa.Table, mask: Bools) -> pa.Table:
    """The rows that the mask admits; in the system's memory, as Arrow's own pool would first reserve MiBs for what are often few rows."""
    return pc.filter(table, arrays.of_numpy(mask), memory_pool=pa.system_memory_pool())


def is_any(table: pa.Table, name: str, wanted: Iterable[str]) -> Bools:
    """Which rows have one of the wanted texts."""
    found, names = codes(table, name)
    mask = np.array([value in set(wanted) for value in names] + [False], dtype=bool)
    return mask[found]


def texts(found: Ints, names: list[str]) -> npt.NDArray[np.object_]:
    """The texts of codes, None for -1."""
    return np.array([*names, None], dtype=object)[found]
