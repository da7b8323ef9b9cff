# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a table by rank, step or kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def where(table: pa.Table, **wanted: Any) -> pa.Table:
    """The rows whose columns equal the values, or are one of a list's; None keeps what is null there."""
    for column, value in wanted.items():
        table = table.filter(_mask(table[column], value))
    return table


def _mask(column: pa.ChunkedArray, value: object) -> pa.ChunkedArray:
    if value is None:
        return pc.is_null(column)
    if isinstance(value, (list, tuple, set, frozenset, range)):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        return pc.is_in(column, pa.array(sorted(value), kind))
    return pc.fill_null(pc.equal(column, value), False)  # noqa: FBT003


def ranks_of(tables: Mapping[str, pa.Table], names: Iterable[str]) -> list[int]:
    """Every rank that has a row in one of the tables."""
    found: set[int] = set()
    for name in names:
        found.update(tables[name]["rank"].unique().to_pylist())
    return sorted(found)
