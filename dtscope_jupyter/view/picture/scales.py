# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""From numbers to places and colours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dtscope_jupyter.intervals import Set
    from dtscope_jupyter.view.palette import Palette

Bytes: TypeAlias = npt.NDArray[np.uint8]
_SHADES = 24
_NICE = (1, 2, 2.5, 5, 10)


def nice(value: float) -> float:
    """The next round number that is not smaller: 1, 2, 2.5 or 5 times a power of ten."""
    if not value > 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(n * power for n in _NICE if n * power >= value * (1 - 1e-9))


def ticks(length: float, most: int) -> list[float]:
    """At most `most` round places from 0 to `length`."""
    apart = nice(length / max(most - 1, 1))
    return [i * apart for i in range(int(length / apart + 1e-9) + 1)]


def whole_ticks(low: int, high: int, most: int) -> list[int]:
    """At most `most` round whole numbers from `low` to `high`, the first and the last among them where few."""
    if high - low < most:
        return list(range(low, high + 1))
    apart = max(round(nice((high - low) / max(most - 1, 1))), 1)
    return list(range(-(-low // apart) * apart, high + 1, apart))


def shades(values: npt.NDArray[np.float64], top: float, palette: Palette) -> Bytes:
    """Colours of costs on the ramp from 0 to `top`, in few shades; unknown ones are paper."""
    table: Bytes = np.array([palette.ramp(i / (_SHADES - 1)) for i in range(_SHADES)] + [palette.rgb("paper")], np.uint8)
    share = np.clip(np.nan_to_num(values, nan=0.0) / top, 0, 1)
    place = np.where(np.isnan(values), _SHADES, np.rint(share * (_SHADES - 1)))
    colors: Bytes = table[place.astype(int)]
    return colors


def coverage(covered: Set, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Share of each pixel, between neighbouring edges, that a set covers."""
    starts, ends = covered
    if not len(starts):
        return np.zeros(len(edges) - 1)
    before = np.concatenate(([0], np.cumsum(ends - starts)))
    count = np.searchsorted(starts, edges, side="left")
    beyond = np.maximum(ends[np.maximum(count - 1, 0)] - edges, 0)
    upto = before[count] - np.where(count > 0, beyond, 0)
    return np.clip(np.diff(upto) / np.diff(edges), 0, 1)


def mixed(shares: list[npt.NDArray[np.float64]], colors: list[str], palette: Palette) -> Bytes:
    """One row of pixels over idle: each share of a pixel in its colour, in eighths."""
    row = np.zeros((len(shares[0]), 3))
    left = np.ones(len(shares[0]))
    for share, color in zip(shares, colors, strict=True):
        eighths = np.minimum(np.rint(share * 8) / 8, left)
        row += eighths[:, None] * np.array(palette.rgb(color))
        left -= eighths
    row += left[:, None] * np.array(palette.rgb("idle"))
    return np.rint(row).astype(np.uint8)


