# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Arrow columns as numpy arrays, without a Python object a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Reals: TypeAlias = npt.NDArray[np.float64]

NONE = -(2**62)
"""Stands for null in an array of integers; no time, step or rank is ever that."""


def ints(table: pa.Table, name: str) -> Ints:
    """An integer column as int64, `NONE` where null."""
    column = table.column(name)
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), NONE)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def reals(table: pa.Table, name: str) -> Reals:
    """A number column as float64, NaN where null."""
    column = table.column(name)
    if column.null_count and pa.types.is_integer(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(), dtype=np.float64)


def codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A text column as codes into a list of its distinct values; -1 where null."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    indices = array.indices.cast(pa.int64())
    if indices.null_count:
        indices = pc.fill_null(indices, -1)
    return _merged(np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64), array.dictionary.to_pylist())


def _merged(indices: Ints, values: list[str | None]) -> tuple[Ints, list[str]]:
    """Equal values of a dictionary get one code, a null value -1."""
    names = list(dict.fromkeys(value for value in values if value is not None))
    if len(names) == len(values):
        return indices, names
    place = {name: code for code, name in enumerate(names)}
    new = np.array([-1 if value is None else place[value] for value in values] + [-1], dtype=np.int64)
    return new[indices], names


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


def is_any(table: pa.Table, name: str, wanted: Iterable[str]) -> Bools:
    """Which rows have one of the wanted texts."""
    found, names = codes(table, name)
    mask = np.array([value in set(wanted) for value in names] + [False], dtype=bool)
    return mask[found]


def texts(found: Ints, names: list[str]) -> npt.NDArray[np.object_]:
    """The texts of codes, None for -1."""
    return np.array([*names, None], dtype=object)[found]
