# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The process groups as this rank meets them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from dtscope_jupyter.agent.recorder import Recorder

P2P = frozenset({"send", "recv"})


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

    def broken(self) -> bool:
        """Whether the runtime has given the group up: what it had in flight then ends without being done."""
        group = self.alive()
        try:
            return group is None or any(int(group._get_backend(device).get_error()) for device in group._device_types)  # noqa: SLF001
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False


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

    def by_name(self) -> dict[str, Group]:
        """Those that are known; of two of one name the later."""
        return {known.name: known for known in tuple(self._known.values())}

    def _write(self, group: Any, known: Group) -> None:
        description = group.group_desc
        self._recorder.add("groups", (known.name, None if description == "undefined" else description, backend(group), known.ranks))


def sequence(name: str, known: Group, group: Any) -> int:
    """The number that the operation is about to get; messages are counted apart, as the runtime does."""
    if name in P2P:
        known.messages += 1
        return known.messages
    return int(group._get_sequence_number_for_group()) + 1  # noqa: SLF001


def _ranks(group: Any) -> list[int] | None:
    try:
        return dist.get_process_group_ranks(group)
    except (KeyError, ValueError, RuntimeError):
        return None


def backend(group: Any) -> str | None:
    """The backend's name; of a group made without naming one, those of its devices, the accelerator's first."""
    try:
        named = str(dist.get_backend(group))
    except (KeyError, ValueError, RuntimeError, AssertionError):
        return None
    return named if named != "undefined" else _real_backend(group)


def _real_backend(group: Any) -> str | None:
    """The backend of the device that the rank computes on."""
    devices = {device.type: device for device in group._device_types}  # noqa: SLF001
    chosen = devices.get("cuda" if torch.cuda.is_initialized() else "cpu") or next(iter(devices.values()), None)
    try:
        return None if chosen is None else str(group._get_backend(chosen).name()).lower()  # noqa: SLF001
    except RuntimeError:
        return None
