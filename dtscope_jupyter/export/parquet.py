# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One Parquet file a table, columns, units and meanings as in schema.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from dtscope_jupyter import query, schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa


def write(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Writes TABLE.parquet for every table, empty ones too; text is plain text there."""
    for name, table in tables.items():
        plain = query.plain(table).cast(schema.TABLES[name].arrow)
        path = folder / f"{name}.parquet"
        pq.write_table(plain, path, compression="zstd")
        path.chmod(0o600)
