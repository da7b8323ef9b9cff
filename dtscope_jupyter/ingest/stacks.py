# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The user's function that a host was in, from a trace recorded with stacks: Kineto tells where a function begins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.ingest.columns import SpanKind

if TYPE_CHECKING:
    from dtscope_jupyter.ingest.columns import Spans

_FUNCTION = re.compile(r"(?P<file>[^<(]+)\((?P<line>\d+)\): ")
_LIBRARY = re.compile(
    r"(^|/)(torch|site-packages|dist-packages|lib/python[\d.]+|dtscope_jupyter/agent)/|^<|^(threading|runpy|contextlib)\.py$"
)
_DEPTH = 64


def is_library(file: str) -> bool:
    """Whether a file is torch's, another package's, Python's own or one of our hooks, by its path."""
    return _LIBRARY.search(file) is not None


class Stacks:
    """The python_function spans of users' files, by thread."""

    def __init__(self, host: Spans, words: list[str]) -> None:
        """Without such spans no line is ever known."""
        lines = {code: line for code in np.unique(host.name[host.kind == SpanKind.python]).tolist() if (line := _line(words[code]))}
        rows = np.flatnonzero((host.kind == SpanKind.python) & np.isin(host.name, list(lines)))
        rows = rows[np.lexsort((-host.end[rows], host.start[rows]))]
        self._lines = lines
        self._spans = host.chosen(rows)
        self._threads = {thread: np.flatnonzero(self._spans.where == thread) for thread in np.unique(self._spans.where).tolist()}

    def line(self, thread: int, time: int) -> str | None:
        """file:line of the innermost function of a user that `thread` was in, else any other thread: backward runs on torch's own."""
        mine = self._threads.get(thread)
        others = [rows for other, rows in self._threads.items() if other != thread]
        for rows in (mine, *others) if mine is not None else others:
            after = int(np.searchsorted(self._spans.start[rows], time, side="right"))
            inside = rows[max(0, after - _DEPTH) : after]
            inside = inside[self._spans.end[inside] >= time]
            if len(inside):
                return self._lines[int(self._spans.name[inside[-1]])]
        return None


def _line(function: str) -> str | None:
    match = _FUNCTION.match(function)
    return f"{match['file']}:{match['line']}" if match and not is_library(match["file"]) else None
