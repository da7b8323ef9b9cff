# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side, as a table, a figure and a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dtscope_jupyter.analysis.compare import Row


@dataclass(frozen=True, repr=False)
class Comparison:
    """What changed from one run to another; `table()` has the numbers, `figure()` shows them, `str()` says them."""

    names: tuple[str, str]
    rows: tuple[Row, ...]

    def table(self) -> pd.DataFrame:
        """A row a figure: figure, unit, both runs' values, change, percent, clear.

        `clear`: |change| exceeds twice the spread between steps (see `analysis.compare.compare`); missing where steps are too few.
        """
        import pandas as pd

        a, b = self._labels()
        frame = pd.DataFrame(self.rows, columns=["figure", "unit", a, b, "spread"])
        frame["change"] = frame[b] - frame[a]
        frame["percent"] = 100 * frame["change"] / frame[a].where(frame[a] != 0).abs()
        clear = (frame["change"].abs() > 2 * frame["spread"]).astype("boolean").mask(frame["spread"].isna())
        return frame.drop(columns="spread").assign(clear=clear)

    def figure(self, theme: str = "light") -> go.Figure:
        """Change of each figure in percent, as bars; those within the spread between steps are pale."""
        import plotly.graph_objects as go

        from dtscope_jupyter.view.figures.style import Style, rank_height

        style = Style.of(theme)
        frame = self.table().dropna(subset=["percent"])[::-1]
        a, b = self._labels()
        values = zip(frame[a], frame[b], frame["unit"], strict=True)
        shown = [f"{before:.4g} → {after:.4g} {unit}" for before, after, unit in values]
        bars = go.Bar(
            x=frame["percent"], y=frame["figure"], orientation="h", text=shown, textposition="auto", hoverinfo="y+x+text",
            marker={"color": style.colors["overlapped"], "opacity": np.where(frame["clear"].fillna(value=True), 1.0, 0.4)},
        )
        return style.figure(
            [bars], f"{b} against {a}", "change in %", "Pale: within the spread between steps.", height=rank_height(len(frame)),
            xaxis={"title": "%", "zeroline": True, "zerolinecolor": style.colors["quiet"]}, yaxis={"showgrid": False},
        )

    def _labels(self) -> tuple[str, str]:
        a, b = self.names
        return (a, b) if a != b else (f"{a} (a)", f"{b} (b)")

    def __str__(self) -> str:
        """A line a figure that is known in both runs."""
        a, b = self._labels()
        lines = [f"{a} -> {b}"]
        for row in self.table().dropna(subset=["change"]).to_dict("records"):
            percent = "" if np.isnan(row["percent"]) else f" ({row['percent']:+.1f} %)"
            lines.append(f"{row['figure']:<26} {row[a]:>10.3f} -> {row[b]:>10.3f} {row['unit']}{percent}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__
