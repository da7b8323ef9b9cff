# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The plotly figures of a run as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.run import Run


def write(run: Run, folder: Path) -> None:
    """Writes NAME.html for every figure that the run has data for; plotly.js lies beside them, nothing is fetched.

    Raises:
        DtscopeError: There is data for none.
    """
    from dtscope_jupyter.view.figures import NAMES

    missing = []
    for name in NAMES:
        try:
            figure = run.figure(name)
        except DtscopeError as error:
            missing.append(str(error))
            continue
        figure.write_html(folder / f"{name}.html", include_plotlyjs="directory")
    if len(missing) == len(NAMES):
        raise DtscopeError(f"no figure can be drawn: {missing[0]}")
