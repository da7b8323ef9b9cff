# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What figures are asked for `by`: names of columns, checked, and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dtscope_jupyter.analysis.columns import NONE, codes, ints, texts
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence


def keys_of(by: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The keys that a user asks for; DtscopeError where one is unknown."""
    keys = (by,) if isinstance(by, str) else tuple(by)
    for key in keys:
        if key not in known:
            message = f"by={key!r} is unknown; choose from {', '.join(known)}"
            raise DtscopeError(message)
    if not keys or len(set(keys)) < len(keys):
        message = f"by={by!r} names no key, or one twice; choose from {', '.join(known)}"
        raise DtscopeError(message)
    return keys


def beside(by: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """As `keys_of`, where none at all is right too."""
    return keys_of(by, known) if by else ()


def column_of(table: pa.Table, key: str) -> object:
    """A column as pandas groups it: texts as objects, integers whole, also where some are missing."""
    import pandas as pd

    if not pa.types.is_integer(table.schema.field(key).type):
        return texts(*codes(table, key))
    column = ints(table, key)
    missing = column == NONE
    return pd.array(column, dtype="Int64") if not missing.any() else pd.arrays.IntegerArray(column, missing)


def columns_of(table: pa.Table, keys: Sequence[str]) -> dict[str, object]:
    """The columns of all keys; of a key that the table does not have, nothing but missing values."""
    import pandas as pd

    known = set(table.column_names)
    return {key: column_of(table, key) if key in known else pd.Series([None] * len(table), dtype=object) for key in keys}
