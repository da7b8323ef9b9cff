# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The static report: image/png and text/plain, and nothing that needs a kernel, a browser or a network."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.view.palette import palette
from dtscope_jupyter.view.picture.draw import render
from dtscope_jupyter.view.report.lines import shown_path, subtitle, text
from dtscope_jupyter.view.scene.build import Scene, scene

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis.result import Diagnosis
    from dtscope_jupyter.run import Run

_WIDTH, _SCALE = 1000, 2


class Report:
    """What a run was and what is wrong with it; drawn once, when first shown.

    GitHub and nbconvert prefer HTML and then strip it, JupyterLab shows no SVG of others: hence a PNG and text.
    """

    def __init__(self, run: Run, *, theme: str | None = None, diagnosis: Diagnosis | None = None) -> None:
        """The report of a run as its tables are now.

        Args:
            run: The run.
            theme: light, dark or high_contrast; None: what the variable DTRAINSCOPE_THEME says, else light, as a page that shows
                a saved notebook mostly is.
            diagnosis: What was found, where that is known already.

        Raises:
            DtscopeError: No such theme.
        """
        self._run = run
        self._found = diagnosis
        self._theme = palette(theme or os.environ.get("DTRAINSCOPE_THEME") or "light").name

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What `run.diagnose()` found."""
        return self._found or self._run.diagnose()

    @cached_property
    def _scene(self) -> Scene:
        return scene(self._run.tables, self.diagnosis)

    @cached_property
    def png(self) -> bytes:
        """The picture, 1000 logical pixels wide at 2x."""
        words = subtitle(self._run.tables, self._scene, self._run.world_size)
        return render(self._scene, title=self._run.name, subtitle=words, theme=self._theme, width=_WIDTH, scale=_SCALE)

    @property
    def _source(self) -> str:
        path = self._run.path
        what = "read from" if self._run.attempt is None else "run directory"
        return "" if path is None else f"{what}: {shown_path(path)}"

    def save(self, path: str | Path) -> Path:
        """Writes the picture to a .png file and returns its path."""
        target = Path(path)
        target.write_bytes(self.png)
        return target

    def __str__(self) -> str:
        return text(self._scene, self._run.name, subtitle(self._run.tables, self._scene, self._run.world_size), self._source)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both forms; IPython applies `include` and `exclude`."""
        del include, exclude
        return {"image/png": self.png, "text/plain": str(self)}, {"image/png": {"width": _WIDTH}}
