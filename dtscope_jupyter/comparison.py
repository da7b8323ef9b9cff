# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side, as a table, a figure and a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import plotly.graph_objects as go

    from dtscope_jupyter.analysis.compare import Row

_LINEAR = 10.0
_AS_FACTOR = 900.0


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
        """Change of each figure in percent, as bars; those within the spread between steps are pale.

        The scale is linear up to about 10 % and logarithmic beyond, so that one large change hides no other.
        """
        import plotly.graph_objects as go

        from dtscope_jupyter.view.figures.style import Style, rank_height

        style = Style.of(theme)
        frame = self.table().dropna(subset=["percent"])[::-1]
        a, b = self._labels()
        values = zip(frame[a], frame[b], frame["unit"], strict=True)
        shown = [f"{before:.4g} → {after:.4g} {unit}" for before, after, unit in values]
        bars = go.Bar(
            x=_place(frame["percent"].to_numpy(float)), y=frame["figure"], orientation="h", text=shown, textposition="outside",
            cliponaxis=False, textfont={"color": style.colors["quiet"]}, customdata=frame["percent"],
            hovertemplate="%{y}: %{customdata:+.3~g} %, %{text}<extra></extra>",
            marker={"color": style.colors["overlapped"], "opacity": np.where(frame["clear"].fillna(value=True), 1.0, 0.4)},
        )
        return style.figure(
            [bars], f"{b} against {a}", "change in %", "Pale: within the spread between steps.", height=rank_height(len(frame)),
            xaxis={"title": "%", "zeroline": True, "zerolinecolor": style.colors["quiet"], **_ticks(frame["percent"].to_numpy(float))},
            yaxis={"showgrid": False},
        )

    def _labels(self) -> tuple[str, str]:
        a, b = self.names
        return (a, b) if a != b else (f"{a} (a)", f"{b} (b)")

    def __str__(self) -> str:
        """A line a figure that is known in both runs."""
        a, b = self._labels()
        lines = [f"{a} -> {b}"]
        for row in self.table().dropna(subset=["change"]).to_dict("records"):
            spread = " within the spread of steps" if row["clear"] is False else ""
            digits = 0 if row["figure"] == "steps" else 3
            values = f"{row[a]:>10.{digits}f} -> {row[b]:>10.{digits}f} {row['unit']}"
            lines.append(f"{row['figure']:<26} {values}{_change(row['percent'])}{spread}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def _change(percent: float) -> str:
    """In percent, as a factor from ten times on, nothing where there is none."""
    if np.isnan(percent) or not percent:
        return ""
    return f" (x {1 + percent / 100:.3g})" if percent >= _AS_FACTOR else f" ({percent:+.1f} %)"


def _place(percent: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Where a change stands on the axis."""
    places: npt.NDArray[np.float64] = np.arcsinh(percent / _LINEAR)
    return places


def _ticks(percent: npt.NDArray[np.float64]) -> dict[str, object]:
    """Round changes up to the largest of each sign, and room for the words beside the bars."""
    low, high = min(float(percent.min(initial=0)), 0.0), max(float(percent.max(initial=0)), 0.0)
    round_ones = [sign * value for value in (10, 100, 1000, 10_000, 100_000) for sign in (-1, 1)]
    shown = [0.0, *(value for value in round_ones if low * 1.01 <= value <= high * 1.01)]
    ends = _place(np.array([low, high]))
    room = 0.45 * max(float(ends[1] - ends[0]), 1.0)
    return {
        "tickmode": "array", "tickvals": _place(np.array(shown)).tolist(), "ticktext": [f"{value:+g}" if value else "0" for value in shown],
        "range": [float(ends[0]) - (room if low < 0 else 0.0), float(ends[1]) + room],
    }
