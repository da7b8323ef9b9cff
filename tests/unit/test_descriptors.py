# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A program that closes descriptors which are not its own costs us nothing, and we never write into its files."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter.descriptors import AppendFile, Mark


def _opened(folder: Path) -> tuple[AppendFile, int]:
    file = AppendFile(folder / "ours")
    return file, file._mark.descriptor


@given(parts=st.lists(st.tuples(st.binary(max_size=20), st.booleans(), st.booleans()), max_size=8))
def test_all_is_written_whatever_is_closed(parts: list[tuple[bytes, bool, bool]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        file, number = _opened(folder)
        theirs = []
        for part, closed, taken in parts:
            if closed and file._mark.stands():
                number = file._mark.descriptor
                os.close(number)
                if taken:
                    other = os.open(folder / "theirs", os.O_RDWR | os.O_CREAT)
                    os.dup2(other, number)
                    theirs += [other, number] if other != number else [number]
            file.append(memoryview(part))
        file.close()
        for descriptor in theirs:
            assert os.fstat(descriptor).st_size == 0
            os.close(descriptor)
        assert (folder / "ours").read_bytes() == b"".join(part for part, _, _ in parts)


def test_another_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    file, number = _opened(tmp_path)
    os.close(number)
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "theirs").replace(tmp_path / "ours")
    with pytest.raises(OSError, match="another file has taken its place"):
        file.append(memoryview(b"x"))
    file.close()
    assert (tmp_path / "ours").read_text() == "theirs"


def test_a_mark_stands_while_its_file_is_open(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    number = os.open(first, os.O_RDWR | os.O_CREAT)
    mark = Mark(number)
    assert mark.stands()
    os.close(number)
    assert not mark.stands()
    other = os.open(second, os.O_RDWR | os.O_CREAT)
    os.dup2(other, number)
    assert not mark.stands()
    for descriptor in {number, other}:
        os.close(descriptor)
