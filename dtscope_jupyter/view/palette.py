# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The colours of every view, from palette.json: one meaning, one colour."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from dtscope_jupyter.errors import DtscopeError

RGB: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one theme, as hex text; `cost` runs from free to dear."""

    name: str
    colors: dict[str, str]
    cost: tuple[str, ...]

    def __getitem__(self, meaning: str) -> str:
        """Hex colour of a meaning (ink, paper, compute, overlapped, exposed, ...)."""
        return self.colors[meaning]

    def rgb(self, meaning: str) -> RGB:
        """The same as three bytes; a hex text stands for itself."""
        return to_rgb(meaning if meaning.startswith("#") else self.colors[meaning])

    def ramp(self, share: float) -> RGB:
        """Colour of a cost between 0 (free) and 1 (dearest), linear between the ramp's stops."""
        place = min(max(share, 0.0), 1.0) * (len(self.cost) - 1)
        low = min(int(place), len(self.cost) - 2)
        return blend(to_rgb(self.cost[low]), to_rgb(self.cost[low + 1]), place - low)


@cache
def palette(theme: str = "light") -> Palette:
    """The palette of light, dark or high_contrast; DtscopeError for another name."""
    themes = json.loads((Path(__file__).parent / "palette.json").read_text(encoding="utf-8"))
    if theme not in themes:
        message = f"no theme {theme!r}; choose one of {', '.join(themes)}"
        raise DtscopeError(message)
    colors = dict(themes[theme])
    return Palette(theme, {k: v for k, v in colors.items() if k != "cost"}, tuple(colors["cost"]))


def to_rgb(color: str) -> RGB:
    """Three bytes of #rrggbb."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def blend(a: RGB, b: RGB, share: float) -> RGB:
    """`a` where share is 0, `b` where it is 1."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def readable_on(background: RGB) -> RGB:
    """Black or white, whichever stands out more (WCAG relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in background)]  # noqa: PLR2004
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (255, 255, 255) if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else (22, 25, 29)
