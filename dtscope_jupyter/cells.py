# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The cell as a program: named so that a rank's traceback shows the cell and its lines."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Cell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def cell_program(shell: InteractiveShell, line: str, cell: str) -> Cell:
    """The cell under the name that the notebook has for it; DtscopeError where no rank could run it."""
    _check(cell)
    filename = shell.compile.cache(f"%%dtscope {line}\n{cell}", shell.execution_count)
    label = shell.compile.format_code_name(filename)
    return Cell(source="\n" + cell, filename=filename, label=" ".join(label) if label else f"Cell In[{shell.execution_count}]")


def _check(cell: str) -> None:
    try:
        ast.parse("\n" + cell)
    except SyntaxError as error:
        text = (error.text or "").strip()
        where = f"line {error.lineno} of the cell"
        if text.startswith(("%", "!")):
            raise DtscopeError(f"{where}: {text.split()[0]!r} works in the notebook, not on ranks: move it to a cell of its own") from error
        raise DtscopeError(f"{where}: {error.msg}: {text}") from error
