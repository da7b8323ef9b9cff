# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Python values to Arrow arrays without pandas.

`pyarrow.array` imports pandas where it is installed, to ask whether it was given a Series: 45 MiB in every rank.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d", pa.float32(): "f"}


def column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The values, None as null, whole reals as integers; `type_` is one that schema.py uses: a number, text, a truth value or numbers.

    Raises:
        TypeError: A value is of another type.
    """
    valid = _valid(values)
    if type_ == pa.bool_():
        return pa.Array.from_buffers(type_, len(values), [valid, _bits([bool(value) for value in values])])
    if type_ == pa.string():
        texts = [b"" if value is None else value.encode() for value in values]
        return pa.Array.from_buffers(type_, len(values), [valid, _ends(texts), pa.py_buffer(b"".join(texts))])
    if pa.types.is_list(type_):
        lists = [() if value is None else value for value in values]
        items = column(list(chain.from_iterable(lists)), type_.value_type)
        return pa.Array.from_buffers(type_, len(values), [valid, _ends(lists)], children=[items])
    numbers = values if valid is None else [0 if value is None else value for value in values]
    if pa.types.is_integer(type_):
        numbers = [int(number) if isinstance(number, float) and number.is_integer() else number for number in numbers]
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(array(_CODES[type_], numbers))])


def _valid(values: Sequence[Any]) -> pa.Buffer | None:
    known = [value is not None for value in values]
    return None if all(known) else _bits(known)


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(flags, bool), bitorder="little").tobytes())


def _ends(parts: Sequence[Sequence[Any]]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(map(len, parts), initial=0)))
