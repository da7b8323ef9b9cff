# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The %dtscope and %%dtscope magics: parse, call, show. What they need is imported when they are used: loading is quick."""

from __future__ import annotations

import importlib
import re
import threading
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

_COMMANDS = ("%dtscope", "%%dtscope")
_QUESTION = re.compile(r"^\s*%%?dtscope(?:\s+(\w+))?\s*\?+\s*$")


@magics_class
class DtscopeMagics(Magics):
    """Holds the one magic."""

    @line_cell_magic
    def dtscope(self, line: str, cell: str | None = None) -> Any:
        """See distributed PyTorch training from a notebook cell: %dtscope help tells how."""
        try:
            return self._run(line, cell)
        except DtscopeError as error:
            raise UsageError(str(error)) from error

    def _run(self, line: str, cell: str | None) -> Any:
        from dtscope_jupyter import arguments, commands, session

        name, options = arguments.parse(line)
        if name == "profile":
            return self._profile(line, cell, options)
        if cell is not None and not line.strip():
            raise DtscopeError("%%dtscope needs a subcommand: write %%dtscope profile to run the cell on every rank")
        if cell is not None:
            raise DtscopeError(f"%%dtscope {name} takes no cell: write %dtscope {name} on a line of its own")
        return commands.run(name, options, session.current())

    def _profile(self, line: str, cell: str | None, options: Any) -> None:
        from dtscope_jupyter import commands, session
        from dtscope_jupyter.cells import cell_body

        if not cell or not cell.strip():
            raise DtscopeError("%%dtscope profile needs a cell: write it on the first line, the program below it")
        assert self.shell is not None
        request = commands.request(options)
        body = cell_body(self.shell, line, cell)
        profile = session.current().start(body, request, self.shell.user_ns)
        if request.background:
            profile.follow_in_background(self.shell.user_ns)
        else:
            profile.follow(self.shell.user_ns)


def load(shell: InteractiveShell) -> None:
    """Registers magics, completion and help, and starts the warm process in the background; again is no harm."""
    if "dtscope" in shell.magics_manager.magics["line"]:
        return
    shell.register_magics(DtscopeMagics)
    shell.Completer.custom_matchers.append(_complete)
    shell.input_transformers_cleanup.append(_ask_help)
    _preparing.start(_prepare)


def unload(shell: InteractiveShell) -> None:
    """Undoes `load`: what runs is ended first, its report can be opened from the run directory."""
    from dtscope_jupyter import session

    _preparing.wait()
    session.close()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("dtscope", None)
    if _complete in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(_complete)
    if _ask_help in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(_ask_help)


class _Background:
    """One thing at a time that is done while the user goes on."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="dtscope-warm", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()


_preparing = _Background()


def _prepare() -> None:
    """Starts the warm process; in a kernel what a live view needs is imported meanwhile, so that the first one is soon there."""
    from dtscope_jupyter import session, stage

    session.current().prepare()
    if stage.has_widgets():
        for name in ("view.live", "attaching", "run"):  # they bring neither torch nor pandas
            importlib.import_module(f"dtscope_jupyter.{name}")


@context_matcher()  # type: ignore[untyped-decorator] # IPython types it not
def _complete(context: CompletionContext) -> SimpleMatcherResult:
    """Subcommands, options and their values alone: Python's keywords, which jedi offers as well, mean nothing here."""
    from dtscope_jupyter import arguments

    line = context.text_until_cursor.lstrip()
    magic, blank, _ = line.partition(" ")
    found = arguments.complete(line) if blank and magic in _COMMANDS else []
    return {"completions": [SimpleCompletion(text, type="magic") for text in found], "suppress": True, "ordered": True}


def _ask_help(lines: list[str]) -> list[str]:
    """%dtscope NAME? asks for the help of a subcommand; IPython by itself would look for an object NAME."""
    return [f"%dtscope help {match[1] or ''}\n" if (match := _QUESTION.match(line)) else line for line in lines]
