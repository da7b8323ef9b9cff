# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Rows to the bytes of one Arrow message: blocks that are alike but for their numbers are packed in one call.

A rank writes such blocks ten times a second, and pyarrow's calls, ten a column, find their code out of the caches then. What pyarrow
made of the first two blocks with as many rows, the same texts and truth values, and nulls in the same columns becomes a *form*
where the form gives the same bytes. (The layout: "Encapsulated message format" and "RecordBatch message" of the Arrow columnar format.)
"""

from __future__ import annotations

import struct
from itertools import chain, repeat
from operator import contains
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.arrays import packer

if TYPE_CHECKING:
    from collections.abc import Sequence

Column: TypeAlias = "Sequence[Any]"
Row: TypeAlias = tuple[Any, ...]

_MOST_ROWS, _MOST_FORMS = 64, 64
"""A bit a row fits one word of 8 bytes, to which Arrow pads every buffer."""
_CODES = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d"}
_FIXED = (pa.bool_(), pa.string())


class Form(NamedTuple):
    """A message with places for numbers: `parts` are what `packed` takes, `numbers` the places and columns, `holed` those with nulls."""

    packed: struct.Struct
    parts: list[Column]
    numbers: list[tuple[int, int]]
    holed: list[tuple[int, int]]

    def fill(self, columns: Sequence[Column]) -> bytes | None:
        """The message; None where a column holds something else than its type says, such as a whole real for an integer."""
        parts = self.parts.copy()
        for place, column in self.numbers:
            parts[place] = columns[column]
        if self.holed:
            nodes = parts[1] = list(parts[1])
            for place, column in self.holed:
                nodes[2 * column + 1], parts[place], parts[place + 1] = _holed(columns[column])
        try:
            return self.packed.pack(*chain.from_iterable(parts))
        except struct.error:
            return None


class Blocks:
    """Makes the blocks of one table."""

    def __init__(self, table: str) -> None:
        """No block is known yet; `forms` has None for what has come once."""
        self._arrow = schema.TABLES[table].arrow
        self._packers = [packer(type_) for type_ in self._arrow.types]
        self._fixed = [number for number, type_ in enumerate(self._arrow.types) if type_ in _FIXED]
        self.forms: dict[Any, Form | None] = {}
        self._plain = any(type_ not in _CODES and type_ not in _FIXED for type_ in self._arrow.types)

    def block(self, rows: Sequence[Row]) -> bytes | pa.Buffer:
        """Of rows with the rank at their end; columns that they don't have, the last of the table, are null."""
        *columns, ranks = zip(*rows, strict=True)
        columns.insert(0, ranks)
        count = len(rows)
        columns += [(None,) * count] * (len(self._packers) - len(columns))
        if self._plain or count > _MOST_ROWS:
            return self.batch(columns).serialize()
        key = (count, *map(contains, columns, repeat(None)), *[columns[number] for number in self._fixed])
        form = self.forms.get(key)
        filled = form.fill(columns) if form is not None else None
        if filled is not None:
            return filled
        block = self.batch(columns).serialize()
        if form is None:
            self._learn(key, columns, block.to_pybytes())
        return block

    def batch(self, columns: Sequence[Column]) -> pa.RecordBatch:
        """As pyarrow makes it."""
        return pa.RecordBatch.from_arrays([pack(cells) for pack, cells in zip(self._packers, columns, strict=True)], schema=self._arrow)

    def _learn(self, key: Any, columns: Sequence[Column], block: bytes) -> None:
        if key not in self.forms:
            if len(self.forms) >= _MOST_FORMS:
                self.forms.clear()
            self.forms[key] = None
            return
        form = _form(self._arrow.types, columns, block)
        filled = form.fill(columns) if form is not None else b""
        if filled == block:
            self.forms[key] = form
        elif filled is not None:
            self._plain = True


def _holed(column: Column) -> tuple[int, Column, Column]:
    """Nulls, the word that says which rows have none, and the numbers with 0 for null."""
    valid = sum([1 << place for place, value in enumerate(column) if value is not None])
    return len(column) - valid.bit_count(), (valid,), [0 if value is None else value for value in column]


def _form(types: Sequence[pa.DataType], columns: Sequence[Column], block: bytes) -> Form | None:
    """Of a message with these columns; None where it does not have the layout that we know."""
    count = len(columns[0])
    nodes = [number for column in columns for number in (count, column.count(None))]
    head, at = block.find(struct.pack(f"<{len(nodes)}q", *nodes)), 8 + int.from_bytes(block[4:8], "little")
    if head < 0:
        return None
    draft = _Draft(block)
    draft.keep(head)
    draft.leave(f"{len(nodes)}q", nodes)
    numbers, holed = list[tuple[int, int]](), list[tuple[int, int]]()
    for number, (type_, column) in enumerate(zip(types, columns, strict=True)):
        if (code := _CODES.get(type_)) is None:
            at += _fixed_bytes(block, at + 8 * (None in column), type_, count) + 8 * (None in column)
            continue
        draft.keep(at)
        if None in column:
            holed.append((len(draft.parts), number))
            draft.leave("Q", ())
        else:
            numbers.append((len(draft.parts), number))
        draft.leave(f"{count}{code}{-count * struct.calcsize(code) % 8}x", ())
        at = draft.at
    draft.keep(len(block))
    return Form(struct.Struct("<" + draft.format), draft.parts, numbers, holed)


class _Draft:
    """A form as it grows along a message: what is kept of this, and what is left open."""

    def __init__(self, block: bytes) -> None:
        self.format, self.at, self.parts = "", 0, list[Column]()
        self._block = block

    def keep(self, end: int) -> None:
        """The bytes up to there are the same in each."""
        if end > self.at:
            self.format += f"{end - self.at}s"
            self.parts.append((self._block[self.at : end],))
            self.at = end

    def leave(self, format_: str, numbers: Column) -> None:
        """Place for numbers."""
        self.format += format_
        self.parts.append(numbers)
        self.at += struct.calcsize("<" + format_)


def _fixed_bytes(block: bytes, at: int, type_: pa.DataType, count: int) -> int:
    """Of a column of truth values or texts whose values begin there: their bits, or where each text ends, and the texts."""
    if type_ == pa.bool_():
        return 8
    (length,) = struct.unpack_from("<i", block, at + 4 * count)
    return _padded(4 * count + 4) + _padded(length)


def _padded(size: int) -> int:
    return -(-size // 8) * 8
