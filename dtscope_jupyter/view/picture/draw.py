# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the panels of a scene on one sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtscope_jupyter.view.palette import palette
from dtscope_jupyter.view.picture.canvas import Canvas
from dtscope_jupyter.view.picture.compose import panels
from dtscope_jupyter.view.picture.panel import GAP, MARGIN
from dtscope_jupyter.view.scene.build import Scene, scene

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dtscope_jupyter.diagnosis.result import Diagnosis
    from dtscope_jupyter.view.picture.panel import Panel

_WIDTHS = (600, 4000)


def draw(
    tables: Mapping[str, pa.Table],
    diagnosis: Diagnosis | None = None,
    *,
    title: str,
    subtitle: str,
    theme: str = "light",
    width: int = 1000,
    scale: int = 2,
) -> bytes:
    """A run as a PNG of `width` logical pixels, `scale` device pixels each; equal input gives equal bytes.

    Args:
        tables: The run's tables.
        diagnosis: What `diagnose` found; without it the picture says that nothing was judged.
        title: Name of the run.
        subtitle: What ran, in a few words.
        theme: light, dark or high_contrast.
        width: Logical width, 600 to 4000.
        scale: Device pixels a logical pixel.

    Raises:
        DtscopeError: An unknown theme.
    """
    return render(scene(tables, diagnosis), title=title, subtitle=subtitle, theme=theme, width=width, scale=scale)


def render(shown: Scene, *, title: str, subtitle: str, theme: str, width: int, scale: int) -> bytes:
    """As `draw`, of a scene that has been built."""
    colors = palette(theme)
    ruler = Canvas(min(max(width, _WIDTHS[0]), _WIDTHS[1]), 1, colors, scale)
    stacked = panels(shown, ruler, title, subtitle)
    canvas = Canvas(ruler.width, _height(stacked), colors, scale)
    top = float(MARGIN - 6)
    for row in stacked:
        for panel in row:
            panel.draw(canvas, top)
        top += max(panel.height for panel in row) + GAP
    return canvas.png()


def _height(rows: Sequence[Sequence[Panel]]) -> int:
    return 2 * MARGIN - 6 + sum(max(panel.height for panel in row) + GAP for row in rows) - GAP
