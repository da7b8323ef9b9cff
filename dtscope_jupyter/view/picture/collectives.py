# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The collectives of the step that were waited for most, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtscope_jupyter.view.picture.panel import TITLE, right, title
from dtscope_jupyter.view.text import UNKNOWN, column, size

if TYPE_CHECKING:
    from dtscope_jupyter.view.picture.canvas import Canvas
    from dtscope_jupyter.view.scene.calls import Call

_HEADS = ("operation", "size", "wait", "transfer", "last rank")
_PLACES = (0.0, 0.5, 0.66, 0.84, 1.0)
_ROW = 21


@dataclass(frozen=True, slots=True)
class Collectives:
    """Beside the table of ranks, from `left` on; `where` names the step."""

    calls: list[Call]
    where: str
    blamed: list[int]
    left: float

    @property
    def height(self) -> int:
        """Its height in logical pixels."""
        return TITLE + _ROW * (len(self.calls) + 1) + 6

    def draw(self, canvas: Canvas, top: float) -> None:
        """Draws it below `top`."""
        title(canvas, top, "Most waited for", f"in ms, {self.where}", left=self.left)
        places = [self.left + (right(canvas) - self.left) * share for share in _PLACES]
        y = top + TITLE + 13
        for i, (head, x) in enumerate(zip(_HEADS, places, strict=True)):
            canvas.text(x, y, head, size=12, color="quiet", align="right" if i else "left")
        canvas.rectangle(self.left, y + 6, right(canvas), y + 6.5, "rule")
        waits, transfers = column(c.wait_ms for c in self.calls), column(c.transfer_ms for c in self.calls)
        for call, wait, transfer in zip(self.calls, waits, transfers, strict=True):
            y += _ROW
            bold = call.last in self.blamed
            canvas.text(places[0], y, canvas.fit(call.operation, places[1] - places[0] - 66))
            texts = (UNKNOWN if call.bytes is None else size(call.bytes), wait, transfer, str(call.last))
            for words, x in zip(texts, places[1:], strict=True):
                canvas.text(x, y, words, align="right", bold=bold and x == places[-1])
