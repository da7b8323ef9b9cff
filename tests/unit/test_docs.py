# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The written pages say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"(?:\]\(|src(?:set)?=\")([^)\"#:]+)[)\"#]")


def test_definitions_and_tables_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "script" / "write-docs", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_names_in_the_readme_exist() -> None:
    import dtscope_jupyter as dts
    from dtscope_jupyter.arguments import SUBCOMMANDS
    from dtscope_jupyter.run import Run

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"%dtscope (\w+)", text)) <= set(SUBCOMMANDS)
    assert set(re.findall(r"\bdts\.(\w+)", text)) <= set(dir(dts))
    assert all(hasattr(Run, name) for name in re.findall(r"\brun\.(\w+)", text))
