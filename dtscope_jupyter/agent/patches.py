# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Places our wrappers on torch's classes and modules, and takes them off again."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING = object()


class Patches:
    """A set of replaced attributes; `undo` restores those that nobody has replaced since."""

    def __init__(self) -> None:
        """Nothing is replaced yet."""
        self._done: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> bool:
        """Replaces `owner.name` by `make(original)`; False where this torch has no such attribute."""
        replaced = getattr(owner, name, None)
        if replaced is None:
            return False
        # of a class the attribute as it is stored: a method of pybind11 got through the class no longer binds
        stored = vars(owner).get(name, _MISSING) if isinstance(owner, type) else replaced
        wrapper = make(replaced)
        with contextlib.suppress(AttributeError):  # a bound method carries no attributes of its own
            functools.update_wrapper(wrapper, replaced)
        setattr(owner, name, wrapper)
        self._done.append((owner, name, stored, wrapper))
        return True

    def undo(self) -> None:
        """Puts the originals back, last first."""
        while self._done:
            owner, name, replaced, wrapper = self._done.pop()
            if getattr(owner, name, None) is not wrapper:
                continue
            if replaced is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, replaced)
