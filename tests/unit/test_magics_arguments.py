# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Parsers of the magics: what they accept, their help, and completion."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtscope_jupyter import arguments
from dtscope_jupyter.agent.config import COLLECTORS
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable


class TestValues:
    @pytest.mark.parametrize(
        ("text", "expected"), [("2GiB", 2 * 2**30), ("500MB", 500 * 10**6), ("1024", 1024), ("1.5 kib", 1536), ("3T", 3 * 10**12)]
    )
    def test_sizes(self, text: str, expected: int) -> None:
        assert arguments.size(text) == expected

    @given(st.integers(1, 10**6), st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]), st.sampled_from(["", "B", "b"]))
    def test_a_size_grows_with_its_number(self, number: int, unit: str, byte: str) -> None:
        assert arguments.size(f"{number + 1}{unit}{byte}") > arguments.size(f"{number}{unit}{byte}") > 0

    @pytest.mark.parametrize(("text", "expected"), [("1%", 0.01), ("0.02", 0.02), ("100%", 1.0)])
    def test_shares(self, text: str, expected: float) -> None:
        assert arguments.share(text) == pytest.approx(expected)

    @pytest.mark.parametrize(("text", "expected"), [("0", [0]), ("0,2-3", [0, 2, 3]), (" 1 , 4", [1, 4])])
    def test_ranks(self, text: str, expected: list[int]) -> None:
        assert arguments.ranks(text) == expected

    def test_pulls(self) -> None:
        assert arguments.pulls("a,b:all") == {"a": False, "b": True}

    @pytest.mark.parametrize(
        "read", [arguments.size, arguments.share, arguments.seconds, arguments.ranks, arguments.pulls, arguments.names]
    )
    @given(text=st.text(max_size=12))
    def test_any_text_is_read_or_refused(self, read: Callable[[str], object], text: str) -> None:
        with contextlib.suppress(argparse.ArgumentTypeError):
            read(text)

    def test_collectors_are_the_agents(self) -> None:
        assert arguments.COLLECTORS == COLLECTORS


class TestParse:
    def test_every_option_of_profile(self) -> None:
        line = (
            "profile -n 4 --backend gloo --dir 'my runs' --name x --push a,b --pull c:all --background --keep --collect steps,spans "
            "--budget 2% --disk 1GiB --timeout 5 --on-hang stop --cluster c"
        )
        name, options = arguments.parse(line)
        assert name == "profile"
        assert vars(options) == {
            "n": 4,
            "backend": "gloo",
            "dir": "my runs",
            "name": "x",
            "push": ["a", "b"],
            "pull": {"c": True},
            "background": True,
            "keep": True,
            "collect": frozenset({"steps", "spans"}),
            "budget": 0.02,
            "disk": 2**30,
            "timeout": 5.0,
            "on_hang": "stop",
            "cluster": "c",
        }

    @given(st.text(max_size=40))
    def test_any_line_is_parsed_or_refused_in_one_line(self, line: str) -> None:
        with contextlib.suppress(DtscopeError):
            assert arguments.parse(line)[0] in arguments.SUBCOMMANDS


class TestHelp:
    @pytest.mark.parametrize("name", arguments.SUBCOMMANDS)
    def test_each_subcommand_has_help_from_its_parser(self, name: str) -> None:
        text = arguments.parser(name).format_help()
        assert f"%dtscope {name}" in text
        for action in arguments.parser(name)._actions:
            assert action.help or action.choices, action.dest

    def test_the_overview_names_all(self) -> None:
        assert all(f"  {name} " in arguments.overview() for name in arguments.SUBCOMMANDS)


class TestComplete:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("%dtscope at", ["attach"]),
            ("%dtscope ", list(arguments.SUBCOMMANDS)),
            ("%%dtscope profile --ba", ["--backend", "--background"]),
            ("%%dtscope profile --backend ", ["gloo", "nccl"]),
            ("%dtscope show o", ["overlap"]),
            ("%dtscope export p", ["parquet", "perfetto"]),
            ("%dtscope help do", ["doctor"]),
            ("%dtscope nonsense ", []),
            ("", list(arguments.SUBCOMMANDS)),
        ],
    )
    def test_subcommands_options_and_choices(self, line: str, expected: list[str]) -> None:
        assert arguments.complete(line) == expected
