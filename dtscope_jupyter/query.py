# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as pandas frames, and SQL over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


def plain(table: pa.Table) -> pa.Table:
    """Dictionary encoded text columns as plain text."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, pa.field(field.name, column.type, field.nullable, field.metadata), column)
    return table


def frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame: integers stay whole (Int64 where there are nulls), so that no time loses nanoseconds."""
    import pandas as pd

    table = plain(table)
    whole = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        columns[name] = column.to_pandas(types_mapper=whole.get) if column.null_count else column.to_pandas()
    return pd.DataFrame(columns)


def table_frame(tables: Mapping[str, pa.Table], name: str) -> pd.DataFrame:
    """One table as a frame; gradients and tiles come with the names of their parameters."""
    if name not in schema.TABLES:
        message = f"there is no table {name!r}; choose from {', '.join(schema.TABLES)}"
        raise DtscopeError(message)
    found = frame(tables[name])
    if name in {"gradients", "gradient_tiles"}:
        names = frame(tables["parameters"])[["rank", "parameter_id", "parameter"]]
        found = found.merge(names.drop_duplicates(["rank", "parameter_id"], keep="last"), on=["rank", "parameter_id"], how="left")
        found.insert(3, "parameter", found.pop("parameter"))
    return found


def sql(tables: Mapping[str, pa.Table], query: str) -> pd.DataFrame:
    """DuckDB's answer over the tables, in a connection that sees nothing else: no file, no network, no variable."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {"python_enable_replacements": False, "enable_external_access": False}
    with duckdb.connect(":memory:", config=settings) as connection:
        for name, table in tables.items():
            connection.register(name, plain(table))
        connection.execute("set lock_configuration = true")
        try:
            return connection.execute(query).df()
        except duckdb.Error as error:
            message = f"SQL: {str(error).splitlines()[0]}; tables are {', '.join(tables)}"
            raise DtscopeError(message) from error
