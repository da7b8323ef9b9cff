# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The cell as a program: named so that a rank's traceback shows the cell and its lines."""

from __future__ import annotations

import linecache
import re
import sys
import warnings
from typing import TYPE_CHECKING

from dtscope_jupyter import stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Cell, Source

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def cell_body(shell: InteractiveShell, line: str, cell: str) -> Cell:
    """The cell under the name that the notebook has for it; DtscopeError where no rank could run it."""
    _check(cell)
    filename = shell.compile.cache(f"%%dtscope {line}\n{cell}", _number(shell))
    return Cell("\n" + cell, filename)


def _number(shell: InteractiveShell) -> int:
    """Number of the cell that runs, by the frame that runs it: versions of IPython count up before or after."""
    frame = sys._getframe()  # noqa: SLF001 # inspect.stack() reads every file on the way
    while frame is not None:
        name = shell.compile.format_code_name(frame.f_code.co_filename)
        digits = re.search(r"\d+", name[1]) if name else None
        if digits is not None:
            return int(digits[0])
        frame = frame.f_back  # type: ignore[assignment]
    return shell.execution_count


def sources(filenames: frozenset[str]) -> dict[str, Source]:
    """The cells of the running notebook among files that code was compiled from."""
    shell = stage.shell()
    if shell is None:
        return {}
    named = {filename: shell.compile.format_code_name(filename) for filename in filenames}
    return {filename: Source("".join(linecache.getlines(filename)), " ".join(name)) for filename, name in named.items() if name}


def _check(cell: str) -> None:
    """Compiles the cell as a rank will, so that what no rank could run is told at once."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the ranks give them
            compile("\n" + cell, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise DtscopeError(_refusal(cell, error)) from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise DtscopeError(f"the cell can't be compiled ({reason}): look for zero bytes and very deep nesting") from error


def _refusal(cell: str, error: SyntaxError) -> str:
    lines = ["", "", *cell.splitlines()]
    number = error.lineno or 0
    text = (error.text or (lines[number] if number < len(lines) else "")).strip()
    where = f"line {number} of the cell"
    if text.startswith(("%", "!")):
        return f"{where}: {text.split()[0]!r} works in the notebook, not on ranks: move it to a cell of its own"
    if "outside" in str(error.msg) and "await" in text:
        return f"{where}: {error.msg}: {text} (ranks run a plain program: write an async function and asyncio.run it)"
    return f"{where}: {error.msg}: {text}"
