# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A sheet to draw on in logical pixels, and its PNG: exact colours of meaning, few colours, no time stamp."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from dtscope_jupyter.view.picture.font import drawable, font

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from dtscope_jupyter.view.palette import RGB, Palette

Align: TypeAlias = Literal["left", "middle", "right"]
Point: TypeAlias = tuple[float, float]
_ANCHOR = {"left": "ls", "middle": "ms", "right": "rs"}
_SMOOTH = 4
_BOLD = 0.22
_COLORS = 256


class Canvas:
    """Draws at `scale` device pixels a logical pixel; x to the right, y down, text on its base line."""

    def __init__(self, width: int, height: int, palette: Palette, scale: int) -> None:
        """A sheet of paper colour."""
        self.width, self.height = width, height
        self.palette = palette
        self.scale = scale
        self._image = Image.new("RGB", (width * scale, height * scale), palette.rgb("paper"))
        self._draw = ImageDraw.Draw(self._image)

    def rectangle(self, left: float, top: float, right: float, bottom: float, color: str | RGB, *, radius: float = 0) -> None:
        """A filled rectangle, at least one device pixel wide and high, on whole pixels."""
        x0, y0 = self._device(left), self._device(top)
        x1, y1 = max(self._device(right), x0 + 1), max(self._device(bottom), y0 + 1)
        if not radius:
            self._draw.rectangle((x0, y0, x1 - 1, y1 - 1), fill=self._rgb(color))
            return
        mask = Image.new("L", ((x1 - x0) * _SMOOTH, (y1 - y0) * _SMOOTH), 0)
        box = (0, 0, mask.width - 1, mask.height - 1)
        ImageDraw.Draw(mask).rounded_rectangle(box, radius * self.scale * _SMOOTH, fill=255)
        self._stamp(mask, x0, y0, color)

    def text(
        self, x: float, y: float, text: str, *, size: float = 13, color: str | RGB = "ink", bold: bool = False, align: Align = "left",
    ) -> float:
        """Writes one line and returns its width; `y` is the base line."""
        letters = drawable(text)
        face = font(round(size * self.scale))
        stroke = _BOLD * self.scale if bold else 0
        place = (self._device(x), self._device(y))
        self._draw.text(place, letters, font=face, fill=self._rgb(color), anchor=_ANCHOR[align], stroke_width=stroke)
        return self.measure(text, size=size)

    def measure(self, text: str, *, size: float = 13) -> float:
        """Width of a line of text."""
        return font(round(size * self.scale)).getlength(drawable(text)) / self.scale

    def fit(self, text: str, width: float, *, size: float = 13) -> str:
        """The text, shortened with an ellipsis where it is wider than `width`."""
        if self.measure(text, size=size) <= width:
            return text
        kept = min(len(text), _most_letters(width))
        while kept and self.measure(text[:kept].rstrip() + "…", size=size) > width:
            kept -= 1
        return text[:kept].rstrip() + "…" if kept else ""

    def fit_end(self, text: str, width: float, *, size: float = 13) -> str:
        """The text, its beginning cut where it is wider than `width`."""
        kept = text[-_most_letters(width) :]
        while kept and self.measure("…" + kept, size=size) > width:
            kept = kept[1:]
        return text if self.measure(text, size=size) <= width else "…" + kept

    def fit_name(self, text: str, width: float, *, size: float = 13) -> str:
        """A dotted name, its first parts left out where it is wider than `width`."""
        if self.measure(text, size=size) <= width:
            return text
        parts = text.split(".")
        for first in range(1, len(parts)):
            kept = "…" + ".".join(parts[first:])
            if self.measure(kept, size=size) <= width:
                return kept
        return self.fit_end(parts[-1], width, size=size)

    def cells(self, left: float, top: float, right: float, bottom: float, colors: npt.NDArray[np.uint8]) -> None:
        """An image of one cell a colour, `colors[row, column, rgb]`, stretched without smoothing."""
        x0, y0, x1, y1 = (self._device(v) for v in (left, top, right, bottom))
        rows, columns = colors.shape[:2]
        row = np.minimum(np.arange(y1 - y0) * rows // max(y1 - y0, 1), rows - 1)
        column = np.minimum(np.arange(x1 - x0) * columns // max(x1 - x0, 1), columns - 1)
        self._image.paste(Image.fromarray(np.ascontiguousarray(colors[row][:, column])), (x0, y0))

    def line(self, points: Sequence[Point], color: str | RGB, *, width: float = 1.2) -> None:
        """A smooth line through the points."""
        left, top = min(p[0] for p in points) - width, min(p[1] for p in points) - width
        right, bottom = max(p[0] for p in points) + width, max(p[1] for p in points) + width
        mask, x0, y0 = self._mask(left, top, right, bottom)
        shifted = [self._fine(p, x0, y0) for p in points]
        ImageDraw.Draw(mask).line(shifted, fill=255, width=round(width * self.scale * _SMOOTH), joint="curve")
        self._stamp(mask, x0, y0, color)

    def dot(self, x: float, y: float, radius: float, fill: str | RGB, edge: str | RGB | None = None) -> None:
        """A disc, with an edge where one is given."""
        if edge is not None:
            self.dot(x, y, radius + 1.2, edge)
        mask, x0, y0 = self._mask(x - radius, y - radius, x + radius, y + radius)
        first, last = self._fine((x - radius, y - radius), x0, y0), self._fine((x + radius, y + radius), x0, y0)
        ImageDraw.Draw(mask).ellipse((*first, *last), fill=255)
        self._stamp(mask, x0, y0, fill)

    def png(self) -> bytes:
        """The sheet as a PNG of at most 256 colours; those of meaning and the commonest stay exact, a rare one becomes its nearest."""
        out = BytesIO()
        _few_colors(self._image, [self.palette.rgb(name) for name in self.palette.colors]).save(out, "PNG", optimize=True)
        return out.getvalue()

    def _device(self, value: float) -> int:
        return round(value * self.scale)

    def _rgb(self, color: str | RGB) -> RGB:
        return self.palette.rgb(color) if isinstance(color, str) else color

    def _mask(self, left: float, top: float, right: float, bottom: float) -> tuple[Image.Image, int, int]:
        x0, y0 = self._device(left) - 1, self._device(top) - 1
        size = (self._device(right) + 2 - x0, self._device(bottom) + 2 - y0)
        return Image.new("L", (size[0] * _SMOOTH, size[1] * _SMOOTH), 0), x0, y0

    def _fine(self, point: Point, x0: int, y0: int) -> Point:
        return (point[0] * self.scale - x0) * _SMOOTH, (point[1] * self.scale - y0) * _SMOOTH

    def _stamp(self, mask: Image.Image, x0: int, y0: int, color: str | RGB) -> None:
        small = mask.resize((mask.width // _SMOOTH, mask.height // _SMOOTH), Image.Resampling.BOX)
        self._image.paste(self._rgb(color), (x0, y0), small)


def _few_colors(image: Image.Image, exact: list[RGB]) -> Image.Image:
    pixels = np.asarray(image)
    packed = pixels[..., 0].astype(np.uint32)
    for channel in (1, 2):
        packed <<= 8
        packed |= pixels[..., channel]
    counts = image.getcolors(1 << 24)
    assert counts is not None, "more colours than a pixel can have"
    present = {color for _, color in counts}
    common = [color for _, color in sorted(counts, key=lambda c: (-c[0], c[1]))]
    ordered = list(dict.fromkeys([c for c in exact if c in present] + common))
    kept = np.array(ordered[:_COLORS], dtype=np.int32)
    table = np.zeros(1 << 24, dtype=np.uint8)
    for start in range(0, len(ordered), 512):
        some = np.array(ordered[start : start + 512], dtype=np.int32)
        distance = ((some[:, None, :] - kept[None, :, :]) ** 2).sum(axis=2)
        table[(some[:, 0] << 16) | (some[:, 1] << 8) | some[:, 2]] = distance.argmin(axis=1)
    few = Image.fromarray(table[packed], "P")
    few.putpalette(kept.astype(np.uint8).tobytes())
    return few


def _most_letters(width: float) -> int:
    """More than fit into a width: a name of a page need not be measured letter by letter."""
    return max(1, int(width))
