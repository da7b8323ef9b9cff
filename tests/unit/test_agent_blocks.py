# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of numbers packed in one call are those that pyarrow makes, byte for byte."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter import schema
from dtscope_jupyter.agent.blocks import Blocks

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

LISTS = ("gradient_tiles", "groups")
NUMBERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1) | st.booleans(),
    pa.float64(): st.floats(allow_nan=False) | st.integers(-(2**40), 2**40),
    pa.float32(): st.floats(allow_nan=False, width=32),
}
FIXED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    pa.bool_(): st.booleans(),
}


def _pool(data: DataObject, type_: pa.DataType) -> list[Any]:
    """A few values, with a null among them or without, the same or not."""
    one = st.lists(NUMBERS[type_.value_type], max_size=3) if pa.types.is_list(type_) else (NUMBERS | FIXED)[type_]
    return data.draw(st.lists(one | st.none() if data.draw(st.booleans()) else one, min_size=1, max_size=4))


def _others(data: DataObject, type_: pa.DataType, pool: list[Any]) -> list[Any]:
    """Other numbers and, where there were some, nulls in other places; texts and truth values as they are."""
    if type_ not in NUMBERS:
        return pool
    return [None if value is None else data.draw(NUMBERS[type_]) for value in reversed(pool)]


def _filled(pools: list[list[Any]], count: int) -> list[list[Any]]:
    return [list(islice(cycle(pool), count)) for pool in pools]


def _rows(columns: list[list[Any]]) -> list[tuple[Any, ...]]:
    """As the recorder keeps them: the rank at the end."""
    return list(zip(*columns[1:], columns[0], strict=True))


def _expected(table: str, columns: list[list[Any]]) -> bytes:
    arrow = schema.TABLES[table].arrow
    arrays = [pa.array([_plain(cell, type_) for cell in cells], type_) for type_, cells in zip(arrow.types, columns, strict=True)]
    return bytes(pa.RecordBatch.from_arrays(arrays, schema=arrow).serialize())


def _plain(cell: Any, type_: pa.DataType) -> Any:
    """pyarrow takes no truth value for a number."""
    if isinstance(cell, list):
        return [_plain(value, type_.value_type) for value in cell]
    return int(cell) if isinstance(cell, bool) and type_ != pa.bool_() else cell


@pytest.mark.parametrize("table", schema.TABLES)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_any_rows_give_the_bytes_of_pyarrow(table: str, data: DataObject) -> None:
    types, blocks = schema.TABLES[table].arrow.types, Blocks(table)
    count = data.draw(st.sampled_from([1, 2, 3, 5, 7, 8, 9, 31, 64, 65]))
    pools = [_pool(data, type_) for type_ in types]
    first = _filled(pools, count)
    second = _filled([_others(data, type_, pool) for type_, pool in zip(types, pools, strict=True)], count)
    for columns in (first, first, first, second, second, second):
        assert bytes(blocks.block(_rows(columns))) == _expected(table, columns)
    assert isinstance(blocks.block(_rows(second)), bytes) == (table not in LISTS and count <= 64)


def _clock(*, real: bool) -> tuple[Any, ...]:
    """A row of `clocks`."""
    return "host", None, 5.0 if real else 5, 6, 7, None, "same_host", 3


@pytest.mark.parametrize("order", [(False, False, False, True), (True, True, True, False, False, True), (False, True, True, False)])
def test_whole_reals_are_integers_in_a_known_block(order: tuple[bool, ...]) -> None:
    blocks = Blocks("clocks")
    assert len({bytes(blocks.block([_clock(real=real)] * 2)) for real in order}) == 1
    assert isinstance(blocks.block([_clock(real=False)] * 2), bytes)


def test_what_no_integer_can_be_is_refused_in_a_known_block() -> None:
    blocks = Blocks("clocks")
    for _ in range(3):
        blocks.block([_clock(real=False)])
    for wrong, error in ((5.5, TypeError), (2**63, OverflowError), ("5", TypeError)):
        with pytest.raises(error):
            blocks.block([("host", None, wrong, *_clock(real=False)[3:])])


def test_rows_of_fewer_columns_end_in_nulls() -> None:
    blocks = Blocks("clocks")
    for _ in range(3):
        block = blocks.block([("host", None, 5, 3), ("host", None, 6, 3)])
        batch = pa.ipc.read_record_batch(pa.py_buffer(block), schema.TABLES["clocks"].arrow)
        batch.validate(full=True)
        assert batch.to_pylist()[1] == dict.fromkeys(batch.schema.names) | {"rank": 3, "host": "host", "time_ns": 6}


def test_ever_new_texts_are_not_kept_for_ever() -> None:
    blocks = Blocks("clocks")
    for number in range(1000):
        for _ in range(2):
            blocks.block([(f"host {number}", *_clock(real=False)[1:])])
    assert len(blocks.forms) <= 64
