# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The letters of the picture: the font that Pillow carries, so that every machine draws the same."""

from __future__ import annotations

import unicodedata
from functools import cache

from PIL import ImageFont

_SPOKEN = str.maketrans(
    {
        "×": "x", "µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "→": ">", "←": "<", "≥": ">=", "≤": "<=",
        "✓": "ok", "✗": "no", "α": "alpha", "β": "beta", "ß": "ss", "ø": "o", "Ø": "O", "æ": "ae",
        "\n": " ", "\t": " ", "\r": " ",
    },
)  # fmt: skip
_DRAWN = frozenset(map(chr, range(32, 127))) | frozenset("·±…‹›“”°•")  # noqa: RUF001


@cache
def font(pixels: int) -> ImageFont.FreeTypeFont:
    """The font at a height in device pixels; the digits are all of one width."""
    loaded = ImageFont.load_default(pixels)
    assert isinstance(loaded, ImageFont.FreeTypeFont), "Pillow without FreeType"
    return loaded


def drawable(text: str) -> str:
    """The text in letters that the font has: signs spelt out, accents dropped, ? for the rest."""
    spoken = text.translate(_SPOKEN)
    if _DRAWN.issuperset(spoken):
        return spoken
    folded = "".join(c if c in _DRAWN else unicodedata.normalize("NFKD", c) for c in spoken)
    return "".join(c if c in _DRAWN else "?" for c in folded if not unicodedata.combining(c))
