# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Python values and numpy arrays to Arrow and back, without pandas and without a copy where there need be none.

`pyarrow.array`, `pyarrow.scalar` and `to_numpy` import pandas where it is installed, to ask whether they were given a Series:
45 MiB in every rank, and 0.1 s before a trace is open.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Bools: TypeAlias = npt.NDArray[np.bool_]

_FEW, _MOST_KEPT = 64, 64
"""A column of so few values that are all the same is made once, as most columns of what a rank writes in a tenth of a second are."""
_CONSTANT = {type(None), bool, int, str}
_CODES = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d", pa.float32(): "f"}


def column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The values, None as null, whole reals as integers; `type_` is one that schema.py uses: a number, text, a truth value or numbers.

    Raises:
        TypeError: A value is of another type.
    """
    return packer(type_)(values)


def packer(type_: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    """`column` of that type, for whoever makes many small ones: what the type is is asked once."""
    pack = _pack(type_)
    kept: dict[tuple[int, Any], pa.Array] = {}

    def make(values: Sequence[Any]) -> pa.Array:
        count, first = len(values), values[0] if values else None
        if not 1 < count <= _FEW or type(first) not in _CONSTANT or values.count(first) < count:
            return pack(values, _bits([value is not None for value in values]) if values.count(None) else None)
        if (found := kept.get((count, first))) is None:
            found = kept[count, first] = pack(values, None if first is not None else _bits([False] * count))
            if len(kept) > _MOST_KEPT:
                kept.clear()
        return found

    return make


def _pack(type_: pa.DataType) -> Callable[[Sequence[Any], pa.Buffer | None], pa.Array]:
    if type_ == pa.bool_():
        return lambda values, valid: pa.Array.from_buffers(type_, len(values), [valid, _bits([bool(value) for value in values])])
    if type_ == pa.string():
        return lambda values, valid: _texts(type_, values, valid)
    if pa.types.is_list(type_):
        return lambda values, valid: _lists(type_, values, valid)
    code = _CODES[type_]
    return lambda values, valid: pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(_packed(code, _filled(values, valid)))])


def _texts(type_: pa.DataType, values: Sequence[str | None], valid: pa.Buffer | None) -> pa.Array:
    texts = [b"" if value is None else value.encode(errors="replace") for value in values]
    return pa.Array.from_buffers(type_, len(values), [valid, _ends(texts), pa.py_buffer(b"".join(texts))])


def _lists(type_: pa.DataType, values: Sequence[Any], valid: pa.Buffer | None) -> pa.Array:
    lists = [() if value is None else value for value in values]
    items = column(list(chain.from_iterable(lists)), type_.value_type)
    return pa.Array.from_buffers(type_, len(values), [valid, _ends(lists)], children=[items])


def _filled(values: Sequence[Any], valid: pa.Buffer | None) -> Sequence[Any]:
    return values if valid is None else [0 if value is None else value for value in values]


def _packed(code: str, numbers: Sequence[Any]) -> array[Any]:
    try:
        return array(code, numbers)
    except TypeError:  # a real where an integer belongs
        return array(code, [int(number) if isinstance(number, float) and number.is_integer() else number for number in numbers])


def of_numpy(values: npt.NDArray[Any], missing: Bools | None = None) -> pa.Array:
    """The numbers or truth values as Arrow array, null where `missing`; it keeps numbers where they are."""
    values = np.ascontiguousarray(values)
    valid = None if missing is None else _bits(~missing)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [valid, _bits(values)])
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def to_numpy(values: pa.ChunkedArray, absent: float) -> npt.NDArray[Any]:
    """Numbers or truth values, `absent` where null, in a type of numpy's that holds both; read-only where nothing had to be changed."""
    parts = [_chunk(chunk, absent) for chunk in values.chunks]
    if not parts:
        return np.zeros(0, values.type.to_pandas_dtype())
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunk(values: pa.Array, absent: float) -> npt.NDArray[Any]:
    valid, data = values.buffers()
    begin, end = values.offset, values.offset + len(values)
    if pa.types.is_boolean(values.type):
        found = _flags(data, begin, end)
    else:
        found = np.frombuffer(data, values.type.to_pandas_dtype(), end)[begin:] if data else np.zeros(0, values.type.to_pandas_dtype())
    if not values.null_count:
        return found
    return np.where(_flags(valid, begin, end), found, np.asarray(absent, np.result_type(found, np.min_scalar_type(absent))))


def _flags(bits: pa.Buffer | None, begin: int, end: int) -> Bools:
    if bits is None:
        return np.zeros(0, bool)
    flags: Bools = np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")[begin:].view(bool)
    return flags


def _bits(flags: Sequence[bool] | Bools) -> pa.Buffer:
    if len(flags) <= _FEW and isinstance(flags, list):
        found = sum(1 << place for place, flag in enumerate(flags) if flag)
        return pa.py_buffer(found.to_bytes((len(flags) + 7) // 8, "little"))
    return pa.py_buffer(np.packbits(np.asarray(flags, bool), bitorder="little"))


def _ends(parts: Sequence[Sequence[Any]]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(map(len, parts), initial=0)))
