# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where a rank begins that is attached to in the midst of training: with a step's beginning, and the same one on every rank.

Hooks are in at once; the step under way is none that could be shown. Ranks get their hooks some ms apart, so that a boundary may lie
between: who attaches is told how far the default group had come on each (its sequence number), and tells all the greatest of these. The
first boundary beyond it is seen by every rank, and all give the step after it the same number, also those that hear of it later.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from dtscope_jupyter.agent.clock import now

_PATIENCE_NS = 2 * 10**9


class Joining:
    """The boundaries since the hooks went in; with `hold` steps are left out until `told` says which number they have."""

    def __init__(self, *, hold: bool = False) -> None:
        """`hold` is given up after two seconds."""
        self._hold = hold
        self._since = now()
        self._seen: list[int] = []
        self._told: tuple[int, int] | None = None

    def told(self, after: int, first: int) -> None:
        """The step that begins at the first boundary beyond the sequence number `after` is number `first`."""
        self._told = after, first

    def boundary(self, step: int, sequence: int) -> int | None:
        """A step ends; the number of the next (`step` + 1 where nobody says), None where that is left out as well."""
        self._seen.append(sequence)
        if self._told is None:
            return None if self._hold and now() - self._since < _PATIENCE_NS else step + 1
        after, first = self._told
        beyond = sum(number > after for number in self._seen)
        if beyond:
            return first + beyond - 1
        return None if now() - self._since < _PATIENCE_NS else first


def sequence() -> int:
    """How many collectives the default group has begun on this rank; 0 where that can't be known."""
    group: Any = dist.group.WORLD
    try:
        return int(group._get_sequence_number_for_group()) if group is not None else 0  # noqa: SLF001
    except RuntimeError:
        return 0
