# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Short texts on what there is: the session, the runs, the faults that wait."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import places, rundir
from dtscope_jupyter.view import live_ranks
from dtscope_jupyter.view.text import count

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.rundir import Attempt
    from dtscope_jupyter.session import Session


def status(session: Session) -> list[str]:
    """A line for each thing that runs or waits."""
    lines = []
    running = session.running
    if running is not None:
        pids, where = ", ".join(map(str, running.job.pids)), places.shown(running.attempt.path)
        which = f"pids {pids}" if pids else "starting"
        lines.append(f"running   {where}: {count(running.job.world_size, 'rank')} ({which}), {running.seconds:.0f} s")
    if session.kept is not None:
        lines.append(f"kept      {count(session.kept.size, 'rank')} (pids {', '.join(map(str, session.kept.pids))})")
    lines += [f"attached  {places.shown(path)}" for path in session.attached]
    if session.has_run:
        where = f", {places.shown(session.run.path)}" if session.run.path else ""
        lines.append(f"current   {session.run.name}: {count(session.run.world_size, 'rank')}{where}")
    if session.faults:
        lines.append(f"faults    {faults(session.faults)} in the next profile")
    lines.append(f"warm      {'process ' + str(session.warm.pid) if session.warm.pid else 'no process: the next profile starts one'}")
    return lines


def faults(given: list[dict[str, Any]]) -> str:
    """The faults in words."""
    return "; ".join(" ".join(str(word) for item in fault.items() for word in item).removeprefix("fault ") for fault in given)


@dataclass(frozen=True)
class Runs:
    """The runs beside the notebook, newest last; its text is a table."""

    paths: tuple[Path, ...]

    def __repr__(self) -> str:
        """A line a run."""
        if not self.paths:
            return f"no runs in {places.FOLDER}/ here"
        lines = [_line(path) for path in self.paths]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def runs() -> Runs:
    """The runs in dtscope-runs/ of the working directory."""
    return Runs(tuple(places.runs()))


def _line(path: Path) -> tuple[str, ...]:
    attempts = rundir.attempts(path)
    meta = attempts[-1].meta
    created, size = meta.get("created_ns"), meta.get("world_size")
    when = f"{dt.datetime.fromtimestamp(created / 1e9).astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(created, int) else "?"
    ranks = count(size, "rank") if isinstance(size, int) else "? ranks"
    return places.shown(path), ranks, count(len(attempts), "attempt"), when, _state(attempts[-1])


def _state(attempt: Attempt) -> str:
    """As its launcher wrote it; of a run that has none, or none yet, what the ranks' heartbeats tell."""
    if told := attempt.meta.get("state"):
        return str(told)
    seen = set(live_ranks.states(attempt.path, attempt.ranks()).values())
    if "running" in seen:
        return "running"
    return "silent" if "silent" in seen else "ended" if seen else ""
