# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Which parameters lie in which of a DDP model's buckets.

DDP begins with an assignment that its Python part makes, and makes another after the first backward, in the order in which
gradients came. Its logging data name that one, from the third forward on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

Kind: TypeAlias = tuple[int, Any, tuple[int, ...]]
_MOST_LESSONS = 32
_KEY = "rebuilt_per_bucket_param_indices"


class Layout:
    """The buckets of one model."""

    def __init__(self, parameters: list[torch.Tensor], indices: list[list[int]] | None) -> None:
        """As DDP hands them to its reducer; `indices` of None where that is long ago."""
        self._parameters = parameters
        known = None if indices is None else [[parameters[index] for index in bucket] for bucket in indices]
        self._buckets: list[list[torch.Tensor]] | None = known
        self._sizes: dict[int, int] = {}
        self._backwards = 0
        self._known = False
        self._kinds: list[Kind] = []

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All parameters that DDP reduces."""
        return self._parameters

    @property
    def final(self) -> bool:
        """Whether buckets stay as they are."""
        return self._known

    @property
    def last(self) -> torch.Tensor | None:
        """A parameter of the last bucket, that which is ready last where DDP has ordered them; None while buckets change."""
        return self._buckets[-1][-1] if self._known and self._buckets else None

    @property
    def kinds(self) -> list[Kind]:
        """Bytes, dtype and shape of each bucket; [] where they are not known."""
        if not self._kinds and self._known and self._buckets:
            sizes = [(sum(p.numel() for p in members), members[0]) for members in self._buckets]
            self._kinds = [(count * first.element_size(), first.dtype, (count,)) for count, first in sizes]
        return self._kinds

    def bucket(self, index: int, elements: int) -> list[torch.Tensor] | None:
        """The parameters of a bucket in the order of its buffer; None where that is not known."""
        if self._buckets is None or index >= len(self._buckets):
            return None
        members = self._buckets[index]
        if index not in self._sizes:
            self._sizes[index] = sum(parameter.numel() for parameter in members)
        return members if self._sizes[index] == elements else None

    def backward_begins(self, model: Any) -> None:
        """Looks up what DDP has made of the buckets since."""
        if self._known:
            return
        self._backwards += 1
        if self._backwards == 1 or model is None:
            return
        self._sizes.clear()
        said = model._get_ddp_logging_data().get(_KEY)  # noqa: SLF001
        if said:
            groups = ([int(index) for index in bucket.split()] for bucket in said.split(","))
            self._buckets, self._known = [[self._parameters[index] for index in group] for group in groups], True
        elif model.find_unused_parameters and not model.static_graph:
            self._known = True
        else:
            self._buckets, self._known = None, self._backwards > _MOST_LESSONS
