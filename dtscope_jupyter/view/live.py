# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Live panels of a run directory, the same panels of a finished run, and as one offline file."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view import live_step, offline
from dtscope_jupyter.view.pump import Pump
from dtscope_jupyter.view.widget import Panels

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.run import Run

PANELS = ("overlap", "gradients", "timeline", "waits", "bandwidth", "devices", "findings", "log")
"""Names that `show` takes."""


class LiveView:
    """Panels that follow a run directory from `start` to `finish`; displaying it shows the widget."""

    def __init__(
        self, path: Path | None, *, world_size: int | None = None, title: str = "", live: bool = True, widget: Panels | None = None
    ) -> None:
        """`path` holds the rank folders, now or later; None for a `widget` whose data no longer change.

        With `live` False one look at the files is all.
        """
        status: dict[str, Any] = {"title": title, "world_size": world_size, "state": "waiting", "message": "", "live": live}
        status |= {"backend": None, "ranks": {}}
        self.widget = widget or Panels(world_size=world_size, live=live)
        self._pump = Pump(path, self.widget, status) if path else None
        if path:
            live_step.Answers(self.widget, functools.partial(live_step.of_directory, path))
        self._live = live

    def start(self) -> None:
        """Begins to follow; to be called once."""
        if self._pump is None:
            return
        if self._live:
            self._pump.start()
        else:
            self._pump.finish("finished", "")

    def finish(self, state: str = "finished", message: str = "") -> None:
        """Shows the last rows and how the run ended, and stops following; more calls change nothing."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.finish("finished" if state == "done" else state, message)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        """As the widget's."""
        return repr(self.widget)


def show(run: Run, panel: str = "overlap", *, rank: int | None = None, step: int | None = None) -> LiveView:
    """One panel of a run, at a rank and step.

    Raises:
        DtscopeError: No panel of that name, no such rank, or a step of which nothing is recorded.
    """
    if panel not in PANELS:
        raise DtscopeError(f"no panel {panel!r}; choose one of {', '.join(PANELS)}")
    if rank is not None and rank not in run.ranks:
        raise DtscopeError(f"rank {rank} is not in this run; its ranks are {run.ranks}")
    if step is not None:
        _recorded(run, step)
    place = {name: value for name, value in (("rank", rank), ("step", step)) if value is not None}
    snapshot = offline.message(run, offline.SHOW_BYTES).pack()
    widget = Panels(world_size=run.world_size, live=False, snapshot=snapshot, panel=panel, place=place)
    live_step.Answers(widget, functools.partial(live_step.of_tables, run.tables))
    return LiveView(None, live=False, widget=widget)


def _recorded(run: Run, step: int) -> None:
    steps = {found for table in ("steps", "collectives") for found in run.tables[table].column("step").unique().to_pylist()} - {None}
    if step not in steps:
        known = f"its steps lie from {min(steps)} to {max(steps)}" if steps else "it has none"
        raise DtscopeError(f"nothing of step {step} is recorded in this run; {known}")


def save_html(run: Run, path: Path) -> Path:
    """Writes the panels as one file that asks for nothing from anywhere, and returns its path.

    Raises:
        DtscopeError: It can't be written there.
    """
    return offline.write(run, path)
