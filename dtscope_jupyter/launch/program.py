# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What is to be run, and how: plain values, sent to every rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """Text of a notebook cell for tracebacks: `label` is what a reader is shown in place of a file's name (`Cell In[3]`)."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A notebook cell, compiled under the name by which the notebook knows it; `text` has the line numbers of the cell."""

    text: str
    filename: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments, as `values.dump` wrote them: bytes of `(function, args)`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Program:
    """One SPMD program: a cell or a call, what is handed to it and what is wanted back.

    `pushed` are bytes of `{name: value}` as `values.dump` wrote them. `pulled` maps a name to whether every
    rank's value is wanted (`x:all`) or only rank 0's. `sources` are the cells, by file name, that its code is from.
    """

    body: Cell | Call
    pushed: bytes | None = None
    pulled: dict[str, bool] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """How a program is run: one process a rank, all on this host.

    `logs` names a log file for each rank; `configs` holds for each rank what its agent is armed with (any
    value that pickles; None: the rank isn't observed). `timeout` is in seconds, None for no limit.
    """

    logs: tuple[str, ...]
    configs: tuple[Any, ...]
    run_id: str
    backend: str | None = None
    timeout: float | None = None
    keep: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.logs)
