# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of Python values and of numpy arrays."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter import schema
from dtscope_jupyter.arrays import column, of_numpy, to_numpy

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

TYPES = sorted({type_ for table in schema.TABLES.values() for type_ in table.arrow.types}, key=str)
PLAIN: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(allow_nan=False, width=32),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.bool_(): st.booleans(),
}


@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(data=st.data())
def test_columns_are_those_of_pyarrow(type_: pa.DataType, data: DataObject) -> None:
    one = st.lists(PLAIN[type_.value_type]) if pa.types.is_list(type_) else PLAIN[type_]
    values = data.draw(st.lists(st.none() | one, max_size=40))
    made = column(values, type_)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))


def test_whole_reals_are_integers() -> None:
    assert column([1, 2.0, None], pa.int64()).to_pylist() == [1, 2, None]


def test_a_value_of_another_type_is_refused() -> None:
    for value in ("two", 2.5):
        with pytest.raises(TypeError):
            column([1, value], pa.int64())


@given(values=st.lists(st.none() | st.integers(-(2**62), 2**62)), cut=st.integers(0, 9))
def test_numbers_go_to_arrow_and_back(values: list[int | None], cut: int) -> None:
    numbers = np.array([0 if value is None else value for value in values], np.int64)
    made = of_numpy(numbers, np.array([value is None for value in values], bool))
    made.validate(full=True)
    assert made.to_pylist() == values
    chunks = pa.chunked_array([made[:cut], made[cut:]])
    assert to_numpy(chunks, -7).tolist() == [-7 if value is None else value for value in values]


def test_what_stands_for_null_may_need_a_wider_type() -> None:
    numbers = pa.chunked_array([pa.array([1, None], pa.int32())])
    assert to_numpy(numbers, -(2**62)).tolist() == [1, -(2**62)]
    assert np.isnan(to_numpy(numbers, np.nan)).tolist() == [False, True]
    assert to_numpy(pa.chunked_array([], pa.int32()), -1).tolist() == []


def test_truth_values_of_numpy() -> None:
    flags = np.array([True, False, True])
    assert of_numpy(flags, np.array([False, True, False])).to_pylist() == [True, None, True]
    chunk = pa.array([None, False, True, None, True])[1:]
    assert to_numpy(pa.chunked_array([chunk]), np.nan)[[0, 1, 3]].tolist() == [0.0, 1.0, 1.0]
    assert to_numpy(pa.chunked_array([chunk[:2]]), 0).tolist() == [False, True]


def test_pandas_is_not_imported() -> None:
    program = """
import sys, tempfile
from pathlib import Path
from dtscope_jupyter.agent.recorder import Recorder
recorder = Recorder(Path(tempfile.mkdtemp()), 0, 2**20)
recorder.note("warning", "a note", 1.0, "text", 3)
recorder.close()
assert recorder.bytes_written
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=300).returncode == 0
