# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What kernel and rank say to each other, over the one pipe between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtscope_jupyter.launch.program import Program


NEVER_SET = "the cell never set it"
"""Why a value is missing that the program could have set."""


@dataclass(frozen=True, slots=True)
class Setup:
    """To a new rank, once: the notebook's state of the moment. `backend` is what init_process_group() takes unless told."""

    environment: dict[str, str]
    cwd: str
    sys_path: list[str]
    backend: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """To a rank: run this, log to `log`, armed with `config`; with `keep` stay for another Run."""

    program: Program
    log: str
    config: Any
    keep: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """To an idle rank that was kept: leave."""


@dataclass(frozen=True, slots=True)
class Ended:
    """From a rank: its program is over. One of: complete (`reason` empty), interrupted, or failed with a reason.

    `values` are the bytes of each pulled value, `unpulled` says of a name why there is none.
    """

    time_ns: int
    interrupted: bool = False
    reason: str = ""
    traceback: str = ""
    values: dict[str, bytes] = field(default_factory=dict)
    unpulled: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the program reached its end."""
        return not self.interrupted and not self.reason
