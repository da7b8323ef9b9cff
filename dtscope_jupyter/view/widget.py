# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The one widget class: state that a page needs at once. Rows come as custom messages (pump.py)."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from dtscope_jupyter.view.text import count

STATIC = Path(__file__).parents[1] / "static"


class Panels(anywidget.AnyWidget):
    """The panels of one run."""

    _esm = STATIC / "widget.js"
    _css = STATIC / "widget.css"
    key = traitlets.Unicode().tag(sync=True)
    """Tells the models of one page apart."""
    snapshot = traitlets.Bytes().tag(sync=True)
    """What a new page draws before, or without, an answer of the kernel: a packed message (live_pack.py)."""
    live = traitlets.Bool(default_value=True).tag(sync=True)
    panel = traitlets.Unicode().tag(sync=True)
    """The only panel to show; "" for all."""
    place = traitlets.Dict().tag(sync=True)
    """Rank and step to show."""

    def __init__(self, *, world_size: int | None = None, **traits: Any) -> None:
        """`world_size` is for the text only."""
        self._world_size = world_size
        super().__init__(key=uuid.uuid4().hex, **traits)
        self.on_msg(_answer)
        _hear_beside_cells(self.comm)

    def __repr__(self) -> str:
        """What stands in the notebook where no kernel is; the same in every session."""
        ranks = "" if self._world_size is None else f" of {count(self._world_size, 'rank')}"
        return f"dtscope: panels{ranks}{self.panel and f', {self.panel}'} (shown while the kernel runs)"


def _hear_beside_cells(comm: Any) -> None:
    """Leaves it to the page on which thread the kernel hears it: JupyterLab and Notebook ask for one beside that of the cells (JEP 91).

    ipykernel since 7.4 has a comm's messages wait for the thread that sent to it last, if that was a cell's even until the cell ends.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _, asked: asked  # noqa: SLF001 - there is no other door


def _answer(widget: Panels, content: dict[str, Any], _: list[Any]) -> None:
    """A page whose link changed asks whether the kernel is still there."""
    if content.get("kind") == "ping":
        widget.send({"kind": "alive"})
