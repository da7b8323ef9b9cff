# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The command where it is typed wrong: one line, exit 2; and what it prints for programs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter import cli, doctor

if TYPE_CHECKING:
    from pathlib import Path

WRONG = {
    "reprot x": ("invalid choice: 'reprot'", "did you mean report?", "(dtscope --help)"),
    "report --jsn x": ("unrecognized arguments: --jsn", "did you mean --json?", "(dtscope report --help)"),
    "report x --jsno": ("unrecognized arguments: --jsno", "did you mean --json?", "(dtscope report --help)"),
    "collect --listn=tcp://0:1 --dir x": ("unrecognized arguments: --listn", "did you mean --listen?", "(dtscope collect --help)"),
    "--versio": ("unrecognized arguments: --versio", "did you mean --version?", "(dtscope --help)"),
    "report": ("required: PATH", "(dtscope report --help)"),
    "": ("required: COMMAND", "(dtscope --help)"),
    "doctor me": ("'me'", "(dtscope doctor --help)"),
    "collect --listen tcp://0:1 --dir x --disk much": ("'much' is no size", "(dtscope collect --help)"),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_word_is_one_line_with_what_may_be_meant(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("dtscope")
    assert all(part in said.err for part in WRONG[line])


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12), max_size=4))
def test_options_that_nobody_knows_are_never_taken(words: list[str]) -> None:
    assert cli.main(["keys", "--no-such-option", *words]) == 2


@pytest.mark.parametrize("line", ["--help", "report --help", "--version"])
def test_help_and_version_are_no_errors(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(line.split())
    assert left.value.code == 0
    assert capsys.readouterr().out


def test_the_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(os.getpid()), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [doctor.Check(**one) for one in said] == doctor.examine(os.getpid())


def test_of_files_that_are_all_bad_each_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(30):
        (tmp_path / f"rank{number:02}.json").write_text('{"traceEvents": [')
    assert cli.main(["report", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[:20] == [f"dtscope: rank{n:02}.json: no usable event among 0: the JSON ends early or is damaged" for n in range(20)]
    assert lines[20] == "dtscope: and 10 more"
    assert lines[21].startswith("dtscope: nothing readable in ")
    assert len(lines) == 22
