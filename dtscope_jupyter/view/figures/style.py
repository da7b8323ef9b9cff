# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The look of every figure, from the one palette."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtscope_jupyter.view.palette import Palette, palette

if TYPE_CHECKING:
    from collections.abc import Sequence

FONT = "Inter, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_HEAD, _FOOT = 84, 96


@dataclass(frozen=True, slots=True)
class Style:
    """Colours of a theme as plotly wants them."""

    colors: Palette

    @classmethod
    def of(cls, theme: str) -> Style:
        """Of light, dark or high_contrast."""
        return cls(palette(theme))

    @property
    def scale(self) -> list[list[Any]]:
        """The ramp of costs as a colour scale."""
        last = len(self.colors.cost) - 1
        return [[i / last, color] for i, color in enumerate(self.colors.cost)]

    @property
    def good_scale(self) -> list[list[Any]]:
        """The ramp turned round: what is large is free."""
        return [[1 - place, color] for place, color in reversed(self.scale)]

    @property
    def series(self) -> list[str]:
        """Colours of curves that mean nothing by themselves; orange is kept for what costs."""
        return [self.colors[name] for name in ("overlapped", "good", "quiet", "accent", "critical", "compute", "ink")]

    def figure(
        self,
        traces: Sequence[Any],
        title: str,
        about: str,
        caption: str,
        *,
        height: int = 420,
        caption_below_axis: bool = True,
        **layout: Any,
    ) -> go.Figure:
        """A figure with its title, quantity and unit on top and what it means below."""
        made = go.Figure(list(traces))
        made.update_layout(
            template=self.template(),
            title={"text": f"<b>{title}</b>  <span style='color:{self.colors['quiet']};font-size:13px'>{literal(about)}</span>"},
            height=height,
            **layout,
        )
        made.add_annotation(
            text=literal(caption),
            xref="paper",
            yref="paper",
            x=0,
            y=0,
            xanchor="left",
            yanchor="top",
            yshift=-54 if caption_below_axis else -8,
            showarrow=False,
            align="left",
            font={"size": 12, "color": self.colors["quiet"]},
        )
        return made

    def colorbar(self, unit: str) -> dict[str, Any]:
        """A thin bar at the right, its unit beside it."""
        quiet = {"color": self.colors["quiet"], "size": 12}
        return {"title": {"text": unit, "side": "right", "font": quiet}, "tickfont": quiet, "thickness": 12, "outlinewidth": 0, "nticks": 5}

    def template(self) -> go.layout.Template:
        """Paper, ink, quiet axes without boxes."""
        colors = self.colors
        axis = {
            "color": colors["quiet"],
            "gridcolor": colors["rule"],
            "linecolor": colors["rule"],
            "zeroline": False,
            "ticks": "",
            "title": {"font": {"color": colors["quiet"], "size": 13}},
            "automargin": True,
            "ticklabelstandoff": 6,
        }
        return go.layout.Template(
            layout={
                "paper_bgcolor": colors["paper"],
                "plot_bgcolor": colors["paper"],
                "font": {"family": FONT, "color": colors["ink"], "size": 13},
                "title": {"x": 0, "xref": "paper", "xanchor": "left", "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 18}},
                "colorway": self.series,
                "xaxis": axis,
                "yaxis": axis,
                "legend": {
                    "orientation": "h",
                    "x": 1,
                    "xanchor": "right",
                    "y": 1.02,
                    "yanchor": "bottom",
                    "font": {"color": colors["quiet"]},
                },
                "margin": {"l": 80, "r": 24, "t": _HEAD, "b": _FOOT},
                "hoverlabel": {"bgcolor": colors["panel"], "bordercolor": colors["rule"], "font": {"color": colors["ink"], "family": FONT}},
                "bargap": 0.25,
            },
        )

    def nothing(self, title: str, words: str) -> go.Figure:
        """What stands for a figure that has nothing to show."""
        made = self.figure([], title, "", "", height=220, xaxis={"visible": False}, yaxis={"visible": False})
        made.add_annotation(
            text=literal(words),
            xref="paper",
            yref="paper",
            x=0,
            y=0.6,
            xanchor="left",
            showarrow=False,
            font={"color": self.colors["quiet"], "size": 14},
        )
        return made


def rank_height(ranks: int, *, each: int = 28, most: int = 1100) -> int:
    """Height of a figure with a row a rank."""
    return min(max(300, _HEAD + _FOOT + each * ranks), most)


def literal(text: object) -> str:
    """Text of a run as plotly shows it letter by letter: labels, names and hover texts are HTML to it."""
    return escape(str(text), quote=False)
