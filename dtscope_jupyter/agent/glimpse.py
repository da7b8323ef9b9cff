# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A few values of a gradient on a CPU in every backward, by C's types: torch's code and numpy's have gone cold by then (100 us)."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

_VALUES = 32
_TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


class Glimpse:
    """Values spread over the gradient of one parameter, also of a type that C does not know."""

    def __init__(self, parameter: torch.Tensor) -> None:
        """Its gradients lie where it does and have its size, as autograd sees to."""
        kind = _TYPES.get(parameter.dtype) if parameter.device.type == "cpu" else None
        self._type = None if kind is None else parameter.dtype
        self._array = (kind or ctypes.c_float) * parameter.numel()
        self._every = max(parameter.numel() // _VALUES, 1)
        self._values: Any = None
        self._at = -1

    def finite(self, gradient: torch.Tensor) -> bool:
        """Whether what was looked at is finite; True where nothing can be looked at."""
        if gradient.dtype is self._type and gradient.is_contiguous():
            at = gradient.data_ptr()
            if at != self._at:
                self._values, self._at = self._array.from_address(at), at
            return bool(sum(self._values[:: self._every]) * 0.0 == 0.0)  # math.isfinite is 4 us more
        if gradient.layout is not torch.strided or not torch.is_floating_point(gradient):
            return True
        with torch.no_grad():
            return math.isfinite(float(gradient.reshape(-1)[:: self._every].sum(dtype=torch.float32)))
