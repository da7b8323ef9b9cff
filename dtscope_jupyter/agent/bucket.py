# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""One of DDP's buckets on its way to be reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Bucket:
    """The buffer holds the local gradients divided by `scale`; `parameters` are in its order, None where that is not known yet.

    `in_place` tells that the synchronised gradients will be found in the buffer, `final` that DDP won't form its buckets anew.
    """

    index: int
    buffer: torch.Tensor
    parameters: list[torch.Tensor] | None
    scale: float
    in_place: bool
    final: bool = True

    def gradients(self) -> list[torch.Tensor]:
        """The local gradients (over `scale`), in the order of `parameters`; [] where that is not known.

        Flat views of the buffer; a sparse gradient has a bucket of its own and is the buffer.
        """
        if self.parameters is None:
            return []
        if self.buffer.is_sparse:
            return [self.buffer]
        return list(self.buffer.view(-1).split([parameter.numel() for parameter in self.parameters]))
