# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The process groups as this rank meets them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from dtscope_jupyter.agent.recorder import Recorder


class Group:
    """A process group: its name, size and own count of sends and receives."""

    __slots__ = ("alive", "last_end", "messages", "name", "ranks", "size")

    def __init__(self, group: Any, name: str) -> None:
        """`group` is torch's."""
        self.alive = weakref.ref(group)
        self.name = name
        self.size: int = group.size()
        self.ranks = _ranks(group)
        self.messages = 0
        self.last_end: Any = None


class Groups:
    """Finds the Group of torch's object; writes `groups` as new ones come."""

    def __init__(self, recorder: Recorder) -> None:
        """None is known yet."""
        self._recorder = recorder
        self._known: dict[int, Group] = {}

    def of(self, group: Any) -> Group:
        """The Group; one made anew under an old name, after destroy and init, is another."""
        known = self._known.get(id(group))
        if known is None or known.alive() is not group:
            known = self._known[id(group)] = Group(group, group.group_name or "0")
            self._write(group, known)
        return known

    def _write(self, group: Any, known: Group) -> None:
        description = group.group_desc
        self._recorder.add("groups", (known.name, None if description == "undefined" else description, _backend(group), known.ranks))


def _ranks(group: Any) -> list[int] | None:
    try:
        return dist.get_process_group_ranks(group)
    except (KeyError, ValueError, RuntimeError):
        return None


def _backend(group: Any) -> str | None:
    try:
        return str(dist.get_backend(group))
    except (KeyError, ValueError, RuntimeError, AssertionError):
        return None
