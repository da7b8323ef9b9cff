# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Why torch can't be imported where it is installed: a file beside the notebook bears the name of a module."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

_MOST = 3


def hint(path: list[str], directory: str) -> str:
    """One clause on the files in `directory`, an entry of the import path `path`, that hide modules found elsewhere; "" for none."""
    hidden = _hidden(path, directory)
    if not hidden:
        return ""
    names = ", ".join(hidden[:_MOST])
    one = len(hidden) == 1
    return f"{names} in {directory} {'hides the module' if one else 'hide the modules'} of that name: rename {'it' if one else 'them'}"


def _hidden(path: list[str], directory: str) -> list[str]:
    others = [entry for entry in path if entry != directory]
    try:
        names = sorted(file.name for file in Path(directory).iterdir() if file.suffix == ".py" or (file / "__init__.py").is_file())
    except OSError:
        return []
    return [name for name in names if _first(name, path) == directory and _first(name, others)]


def _first(name: str, path: list[str]) -> str | None:
    """The entry of the path by which a module is found."""
    spec = PathFinder.find_spec(name.removesuffix(".py"), path)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    return str(file.parent.parent if file.name == "__init__.py" else file.parent)
