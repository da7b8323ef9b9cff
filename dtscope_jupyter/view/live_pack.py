# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Messages to the browser: a JSON header and buffers of Arrow IPC bytes, as one byte string where it must be one.

    u32 length of the header (little endian), the header, zeros to a multiple of 8, then each buffer, padded likewise

The header's `sizes` tells the buffers' lengths and `crcs` their CRC-32. js/src/container.ts reads it.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    import pyarrow as pa

_ROWS = 65_536


@dataclass
class Message:
    """A header and its buffers; `add` puts blocks of one table in."""

    header: dict[str, Any] = field(default_factory=dict)
    buffers: list[bytes] = field(default_factory=list)

    def add_schema(self, number: int, data: bytes) -> None:
        """A schema message that later parts name by its number."""
        self.header.setdefault("schemas", []).append({"id": number, "buffer": len(self.buffers)})
        self.buffers.append(data)

    def add(self, table: str, number: int, blocks: Iterable[bytes]) -> None:
        """Record batches of one table that fit the schema of that number."""
        first = len(self.buffers)
        self.buffers.extend(blocks)
        if len(self.buffers) > first:
            part = {"table": table, "schema": number, "buffers": list(range(first, len(self.buffers)))}
            self.header.setdefault("parts", []).append(part)

    def add_matrix(self, metric: str, ranks: list[int], first: int, values: npt.NDArray[np.float32]) -> None:
        """One metric of the map, [rank, step] from the step `first` on, where the rows themselves would be too many; NaN is unknown."""
        entry = {"metric": metric, "ranks": ranks, "first": first, "columns": values.shape[1], "buffer": len(self.buffers)}
        self.header.setdefault("matrices", []).append(entry)
        self.buffers.append(np.ascontiguousarray(values, dtype="<f4").tobytes())

    def signed(self) -> dict[str, Any]:
        """The header with the checksums of the buffers: the browser decodes nothing without."""
        return {**self.header, "crcs": [zlib.crc32(buffer) for buffer in self.buffers]}

    def pack(self) -> bytes:
        """The message as one byte string."""
        header = json.dumps({**self.signed(), "sizes": [len(buffer) for buffer in self.buffers]}).encode()
        parts = [_padded(len(header).to_bytes(4, "little") + header)]
        parts += [_padded(buffer) for buffer in self.buffers]
        return b"".join(parts)


def own_schemas() -> list[bytes]:
    """The schema messages of this version's tables; a table's place among them is its number."""
    return [table.arrow.serialize().to_pybytes() for table in schema.TABLES.values()]


def own_number(table: str) -> int:
    """Number of a table's schema of this version."""
    return list(schema.TABLES).index(table)


def of_tables(tables: Mapping[str, pa.Table], header: dict[str, Any]) -> Message:
    """A message that carries whole tables."""
    message = Message({"kind": "data", "frame": 0, "reset": True, **header})
    for number, (name, data) in enumerate(zip(schema.TABLES, own_schemas(), strict=True)):
        message.add_schema(number, data)
        if name in tables and len(tables[name]):
            message.add(name, number, batches(tables[name], name))
    return message


def batches(table: pa.Table, name: str) -> list[bytes]:
    """The table as record batch messages of its schema; dictionary encoded texts are written out."""
    plain = table.cast(schema.TABLES[name].arrow).combine_chunks()
    return [batch.serialize().to_pybytes() for batch in plain.to_batches(max_chunksize=_ROWS)]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
