# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The other findings, and what was looked at and found in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtscope_jupyter.view.picture.panel import TITLE, right, title

if TYPE_CHECKING:
    from dtscope_jupyter.view.picture.canvas import Canvas


@dataclass(frozen=True, slots=True)
class Notes:
    """Lines of (colour of the mark, text, bold), already as wide as the column; beside the table of ranks."""

    name: str
    lines: list[tuple[str | None, str, bool]]
    left: float

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + 19 * len(self.lines) + 6

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        title(canvas, top, self.name, "", left=self.left)
        y = top + TITLE + 13
        for color, words, bold in self.lines:
            if color is not None:
                canvas.dot(self.left + 4, y - 4.5, 4, color)
            shown = canvas.fit(words, right(canvas) - self.left - 16, size=12.5)
            canvas.text(self.left + 16, y, shown, size=12.5, color="ink" if bold else "quiet")
            y += 19
