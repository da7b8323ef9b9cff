# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the user's program as `__main__` and says how it ended."""

from __future__ import annotations
import __future__

import ast
import linecache
import signal
import sys
import time
import traceback
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.launch import values
from dtscope_jupyter.launch.messages import NEVER_SET, Ended
from dtscope_jupyter.launch.program import Call

if TYPE_CHECKING:
    from dtscope_jupyter.launch.program import Cell, Program

_RANK_VARIABLE = "RANK"
_LONGEST_REASON = 1000
_MOST_FRAMES = 5000
"""The innermost ones of a deeper stack are shown: walking a million of them takes longer than anyone waits."""


def execute(program: Program) -> Ended:
    """Runs the program in the process's `__main__`, made anew unless an earlier program of ours left one."""
    namespace = _main().__dict__
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _remember(program)
        if program.pushed is not None:
            namespace.update(values.load(program.pushed))
        _run(program.body, namespace)
    except SystemExit as error:
        ended = _exited(error)
    except KeyboardInterrupt:
        ended = Ended(time.time_ns(), interrupted=True)
    except BaseException as error:  # noqa: BLE001 # whatever ends the user's program is reported
        ended = _failed(error, program)
    else:
        ended = Ended(time.time_ns())
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _pull(program, namespace, ended) if ended.complete else ended


def _main() -> types.ModuleType:
    main = sys.modules["__main__"]
    if not getattr(main, "__dtscope_rank__", False):
        main = types.ModuleType("__main__")
        main.__dict__.update({"__builtins__": __builtins__, "__dtscope_rank__": True})
        sys.modules["__main__"] = main
    return main


def _run(body: Cell | Call, namespace: dict[str, Any]) -> None:
    if isinstance(body, Call):
        function, arguments = values.load(body.data)
        function(*arguments)
        return
    for code in _codes(body):
        exec(code, namespace)  # noqa: S102 # the user's own cell


def _remember(program: Program) -> None:
    """Code of a cell has the cell's label for a file name, so that stacks, warnings and our own tables name it too."""
    for filename, source in program.sources.items():
        values.labels[filename] = source.label
        linecache.cache[source.label] = (len(source.text), None, source.text.splitlines(keepends=True), source.label)


def _codes(cell: Cell) -> list[types.CodeType]:
    """The cell's statements, and its last expression by itself so that its value is shown."""
    filename = values.labels.get(cell.filename, cell.filename)
    tree = ast.parse(cell.text, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    statements = compile(tree, filename, "exec", dont_inherit=True)
    if last is None:
        return [statements]
    flags = sum({getattr(__future__, name).compiler_flag & statements.co_flags for name in __future__.all_feature_names})
    return [statements, compile(ast.Interactive([last]), filename, "single", flags, dont_inherit=True)]


def _exited(error: SystemExit) -> Ended:
    if error.code in (None, 0):
        return Ended(time.time_ns())
    code = error.code if isinstance(error.code, int) else 1
    text = "" if isinstance(error.code, int) else f" ({error.code})"
    return Ended(time.time_ns(), reason=f"left by sys.exit with code {code}{text}")


def _failed(error: BaseException, program: Program) -> Ended:
    now = time.time_ns()
    summary = traceback.TracebackException.from_exception(error, limit=-_MOST_FRAMES, compact=True)
    _drop_ours(summary)
    text = "".join(summary.format())
    for source in program.sources.values():
        text = text.replace(f'File "{source.label}", line', f"{source.label}, line")
    return Ended(now, reason=_first_line(error), traceback=text)


def _first_line(error: BaseException) -> str:
    """Type and first line of the message: behind it may come more lines, notes and, for SyntaxError before it, the source."""
    said = next((entry for entry in traceback.format_exception_only(error) if not entry.startswith(" ")), type(error).__name__)
    return (said.splitlines() or [type(error).__name__])[0][:_LONGEST_REASON]


def _drop_ours(summary: traceback.TracebackException) -> None:
    """The frames by which we came to the user's code tell a reader nothing."""
    while summary.stack and summary.stack[0].filename in (__file__, values.__file__):
        del summary.stack[0]


def _pull(program: Program, namespace: dict[str, Any], ended: Ended) -> Ended:
    import os

    pulled, unpulled = {}, {}
    for name, everywhere in program.pulled.items():
        if not everywhere and os.environ.get(_RANK_VARIABLE) != "0":
            continue
        if name not in namespace:
            unpulled[name] = NEVER_SET
            continue
        try:
            pulled[name] = values.dump(namespace[name])
        except (Exception, SystemExit) as error:  # noqa: BLE001 # pickling runs code of any type
            unpulled[name] = f"a {type(namespace[name]).__name__} can't be sent to another process ({error})"
    return replace(ended, values=pulled, unpulled=unpulled)
