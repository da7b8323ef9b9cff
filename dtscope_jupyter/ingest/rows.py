# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Arrow tables of schema.py from columns or rows; what a source doesn't tell is null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from dtscope_jupyter import arrays, schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Tables: TypeAlias = "dict[str, pa.Table]"

NO_RANK = -1
"""The rank of a note on a file that is of no rank."""


def from_columns(name: str, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """The table `name` of `rows` rows; `columns` are Arrow or numpy arrays or one value for all rows, those not given are null."""
    arrow = schema.TABLES[name].arrow
    made = [_column(field, rows, columns.get(field.name)) for field in arrow]
    return pa.table(made, names=arrow.names)


def from_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The table `name` from a mapping a row."""
    arrow = schema.TABLES[name].arrow
    return pa.table([arrays.column([row.get(field.name) for row in rows], field.type) for field in arrow], schema=arrow)


def nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """Nulls that cost next to no memory: their buffers are zeroed pages that nobody has touched."""
    zeros = pa.py_buffer(np.zeros(8 * rows + 8, np.uint8))
    if pa.types.is_primitive(kind):
        return pa.Array.from_buffers(kind, rows, [zeros, zeros], rows)
    return pa.Array.from_buffers(kind, rows, [zeros, zeros, pa.py_buffer(b"")], rows) if kind == pa.utf8() else pa.nulls(rows, kind)


def optional(values: np.ndarray[Any, Any], absent: int = -1) -> pa.Array:
    """Integers as an Arrow array, null where `absent`."""
    missing = values == absent
    if missing.all():
        return nulls(pa.int64(), len(values))
    return arrays.of_numpy(values, missing if missing.any() else None)


def texts(words: Sequence[str]) -> pa.Array:
    """Words for `coded`, made once for several columns."""
    return arrays.column(words, pa.utf8())


def coded(codes: np.ndarray[Any, Any], words: Sequence[str] | pa.Array) -> pa.DictionaryArray:
    """Text as a dictionary array; code -1 is null."""
    if not len(codes) or codes.max() < 0:
        return no_text(len(codes))
    codes = codes.astype(np.int32, copy=False)
    missing = codes < 0 if codes.min() < 0 else None
    return pa.DictionaryArray.from_arrays(arrays.of_numpy(codes, missing), words if isinstance(words, pa.Array) else texts(words))


def no_text(rows: int) -> pa.DictionaryArray:
    """Nulls that fit to what `coded` makes."""
    return pa.DictionaryArray.from_arrays(nulls(pa.int32(), rows), texts([]))


def note(kind: str, name: str, text: str, rank: int = NO_RANK, value: float | None = None) -> dict[str, Any]:
    """A row of `notes`."""
    return {"rank": rank, "kind": kind, "name": name, "text": text, "value": value}


def _column(field: pa.Field, rows: int, values: Any) -> pa.Array:
    if values is None:
        return nulls(field.type, rows)
    if isinstance(values, str):
        return coded(np.zeros(rows, np.int32), [values])
    if np.isscalar(values):
        values = np.full(rows, values, field.type.to_pandas_dtype())
    array = values if isinstance(values, pa.Array) else arrays.of_numpy(values)
    assert len(array) == rows, f"{field.name}: {len(array)} values for {rows} rows"
    return array if pa.types.is_dictionary(array.type) or array.type == field.type else array.cast(field.type)
