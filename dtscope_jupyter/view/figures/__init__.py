# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""plotly figures by the names of the panels, for papers and slides: same colours, units and words as the panels.

plotly itself is imported when the first figure is drawn.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.figures.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    import plotly.graph_objects as go
    import pyarrow as pa

    from dtscope_jupyter.run import Run

NAMES = ("overlap", "gradients", "timeline", "waits", "bandwidth", "devices", "topology", "findings", "log")


def figure(run: Run | Mapping[str, pa.Table], name: str, *, theme: str = "light", **options: Any) -> go.Figure:
    """The figure of a panel.

    Args:
        run: A run, or its tables.
        name: One of `NAMES`.
        theme: light, dark or high_contrast.
        options: overlap: metric; gradients: value, step; timeline: step, ranks; waits: by; bandwidth: by; devices: metric.

    Raises:
        DtscopeError: An unknown name, option or theme.
    """
    if name not in NAMES:
        message = f"no figure {name!r}; choose one of {', '.join(NAMES)}"
        raise DtscopeError(message)
    draw = import_module(f"{__name__}.{name}").draw
    known = list(signature(draw).parameters)[2:]
    unknown = [option for option in options if option not in known]
    if unknown:
        choice = f"choose from {', '.join(known)}" if known else "it has none"
        message = f"figure {name!r} has no option {unknown[0]!r}; {choice}"
        raise DtscopeError(message)
    from dtscope_jupyter.view.figures.style import Style

    drawn: go.Figure = draw(Source.of(run), Style.of(theme), **options)
    return drawn


__all__ = ["NAMES", "figure"]
