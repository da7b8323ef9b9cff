# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Short texts on what there is: the session, the runs, the faults that wait."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import places, rundir

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.session import Session


def status(session: Session) -> list[str]:
    """A line for each thing that runs or waits."""
    lines = []
    running = session.running
    if running is not None:
        pids, where = ", ".join(map(str, running.job.pids)), places.shown(running.attempt.path)
        lines.append(f"running   {where}: {running.job.world_size} ranks (pids {pids}), {running.seconds:.0f} s")
    if session.kept is not None:
        lines.append(f"kept      {session.kept.size} ranks (pids {', '.join(map(str, session.kept.pids))})")
    lines += [f"attached  {places.shown(path)}" for path in session.attached]
    if session.has_run:
        where = f", {places.shown(session.run.path)}" if session.run.path else ""
        lines.append(f"current   {session.run.name}: {session.run.world_size} ranks{where}")
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
        width = max(len(line[0]) for line in lines)
        texts = (f"{where:<{width}}  {size:>5} ranks  {attempts} attempts  {when}  {state}" for where, size, attempts, when, state in lines)
        return "\n".join(text.rstrip() for text in texts)


def runs() -> Runs:
    """The runs in dtscope-runs/ of the working directory."""
    return Runs(tuple(places.runs()))


def _line(path: Path) -> tuple[str, str, int, str, str]:
    attempts = rundir.attempts(path)
    meta = attempts[-1].meta
    created = meta.get("created_ns")
    when = f"{dt.datetime.fromtimestamp(created / 1e9).astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(created, int) else "?"
    return places.shown(path), str(meta.get("world_size", "?")), len(attempts), when, str(meta.get("state", ""))
