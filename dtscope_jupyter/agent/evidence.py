# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Whether gradients were reset or parameters changed since the last backward, by autograd's version counters.

A write through `.data` is not counted by autograd and is not seen.
"""

from __future__ import annotations

import weakref

import torch

_MOST = 8


class Evidence:
    """Looks at a few parameters, so that a look costs microseconds."""

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self._watched: list[weakref.ref[torch.Tensor]] = []
        self._last: list[tuple[weakref.ref[torch.Tensor], int, int]] = []
        self._forgotten = False

    def watch(self, parameters: list[torch.Tensor]) -> None:
        """Looks at the first and the last of these as well."""
        for parameter in {id(p): p for p in (*parameters[:1], *parameters[-1:])}.values():
            self._watched.append(weakref.ref(parameter))
        del self._watched[:-_MOST]

    def forget(self) -> None:
        """A backward has ended of which nothing was kept: only a gradient that is gone, or zero, tells of a reset."""
        self._forgotten, self._last = True, []

    def remember(self) -> None:
        """The backward has ended: keeps what it left."""
        self._forgotten, self._last = False, []
        for reference in self._watched:
            parameter = reference()
            gradient = None if parameter is None else parameter.grad
            if parameter is not None and gradient is not None:
                self._last.append((reference, parameter._version, gradient._version))  # noqa: SLF001

    def since_last(self) -> tuple[bool, bool]:
        """(every gradient reset, any parameter updated) since `remember`."""
        if self._forgotten:
            gradients = [p.grad for reference in self._watched if (p := reference()) is not None and p.requires_grad]
            return bool(gradients) and all(map(_is_reset, gradients)), False
        alive = [(p, v, g) for reference, v, g in self._last if (p := reference()) is not None]
        reset = bool(alive) and all(p.grad is None or p.grad._version != g for p, _, g in alive)  # noqa: SLF001
        return reset, any(p._version != v for p, v, _ in alive)  # noqa: SLF001


def _is_reset(gradient: torch.Tensor | None) -> bool:
    return gradient is None or (type(gradient) is torch.Tensor and gradient.layout is torch.strided and not bool(gradient.any()))
