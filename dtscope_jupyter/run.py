# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The public Run: a run directory, or traces and dumps, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dtscope_jupyter import rundir
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import networkx as nx
    import pandas as pd
    import plotly.graph_objects as go
    import pyarrow as pa

    from dtscope_jupyter.comparison import Comparison
    from dtscope_jupyter.diagnosis.result import Diagnosis
    from dtscope_jupyter.reading import AttemptReader
    from dtscope_jupyter.view.live import LiveView
    from dtscope_jupyter.view.report import Report

PathsLike: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"
_MOST_RANKS = 10**6
"""A world size beyond this in a run.json is not believed."""


class Run:
    """One training run, live, finished or imported: tables, and figures derived from them.

    All durations are milliseconds, all times nanoseconds of Unix time. Tables are read when first asked for;
    `refresh` takes in what a live run has written since.
    """

    def __init__(
        self,
        tables: Mapping[str, pa.Table],
        *,
        name: str = "run",
        path: Path | None = None,
        world_size: int | None = None,
        topology: nx.MultiGraph[str] | None = None,
    ) -> None:
        """A run of given tables, every one of `schema.TABLES`; `open` makes one from files."""
        self.name = name
        self.path = path
        self.topology = topology
        self.attempt: rundir.Attempt | None = None
        self._tables: Mapping[str, pa.Table] | None = tables
        self._world_size = world_size
        self._reader: AttemptReader | None = None

    @classmethod
    def of_directory(cls, path: Path, attempt: int | None = None) -> Run:
        """The newest attempt of a run directory, or the one of that number.

        Raises:
            DtscopeError: No such attempt.
        """
        from dtscope_jupyter.reading import AttemptReader

        found = rundir.attempts(path)
        chosen = [one for one in found if attempt in (None, one.number)]
        if not chosen:
            message = f"{str(path)!r} holds no attempt {attempt}; choose from {[one.number for one in found]}"
            raise DtscopeError(message)
        meta = chosen[-1].meta
        size = meta.get("world_size")
        believed = size if isinstance(size, int) and 0 < size <= _MOST_RANKS else None
        run = cls({}, name=str(meta.get("name") or path.name), path=path, world_size=believed)
        run.attempt, run._tables, run._reader = chosen[-1], None, AttemptReader(chosen[-1])
        return run

    @property
    def tables(self) -> Mapping[str, pa.Table]:
        """Every table of `schema.TABLES`, by name."""
        if self._tables is None:
            assert self._reader is not None, "a run without tables has a reader"
            self._reader.poll()
            self._tables = self._reader.tables()
        return self._tables

    def refresh(self) -> bool:
        """Takes in what a live run has written since; returns whether there was anything."""
        if self._reader is None or (not self._reader.poll() and self._tables is not None):
            return False
        self._tables = self._reader.tables()
        return True

    @property
    def attempts(self) -> list[int]:
        """Numbers of the attempts in the run directory, oldest first; [0] for an import."""
        return [one.number for one in rundir.attempts(self.path)] if self.attempt and self.path else [0]

    @property
    def ranks(self) -> list[int]:
        """The ranks that are present, in order."""
        found = set(self.attempt.ranks()) if self.attempt else set()
        for name in ("steps", "collectives", "spans", "host", "groups", "clocks"):
            found |= set(self.tables[name].column("rank").unique().to_pylist())
        return sorted(found)

    @property
    def world_size(self) -> int:
        """Ranks of the job, whether present or not; at least what process groups and ranks imply."""
        if self._world_size:
            return self._world_size
        members = self.tables["groups"].column("ranks").combine_chunks().flatten()
        sizes = self.tables["collectives"].column("group_size").to_numpy()
        largest = np.nanmax(sizes) if len(sizes) and not np.isnan(sizes.astype(float)).all() else 0
        return max(int(largest), 1 + max([*self.ranks, *members.unique().to_pylist()], default=-1))

    def table(self, name: str) -> pd.DataFrame:
        """One table as a pandas frame, columns as in `schema`; gradients carry their parameter's name.

        Raises:
            DtscopeError: No such table.
        """
        from dtscope_jupyter import query

        return query.table_frame(self.tables, name)

    def sql(self, statement: str) -> pd.DataFrame:
        """DuckDB's answer to one statement over the tables; it can't reach files or the network.

        Raises:
            DtscopeError: DuckDB refuses the statement.
        """
        from dtscope_jupyter import query

        return query.sql(self.tables, statement)

    def overlap(self, by: str | Sequence[str] = "rank", convention: str | None = None) -> pd.DataFrame:
        """Hidden and exposed communication: `analysis.overlap.overlap`."""
        from dtscope_jupyter.analysis.overlap import overlap

        return overlap(self.tables, by, convention)

    def waits(self, by: str | Sequence[str] = "rank", convention: str | None = None) -> pd.DataFrame:
        """Who waited for whom: `analysis.waits.waits`."""
        from dtscope_jupyter.analysis.waits import waits

        return waits(self.tables, by, convention)

    def bandwidth(self, by: str | Sequence[str] = "operation") -> pd.DataFrame:
        """Algorithm and bus bandwidth, GB/s: `analysis.bandwidth.bandwidth`."""
        from dtscope_jupyter.analysis.bandwidth import bandwidth

        return bandwidth(self.tables, by)

    def breakdown(self, by: str | Sequence[str] = "rank", convention: str | None = None) -> pd.DataFrame:
        """Compute, communication, copies, idle and its reason: `analysis.breakdown.breakdown`."""
        from dtscope_jupyter.analysis.breakdown import breakdown

        return breakdown(self.tables, by, convention)

    def kernels(self, largest: int = 20, by: str | Sequence[str] = ()) -> pd.DataFrame:
        """The names that took the most device time: `analysis.kernels.kernels`."""
        from dtscope_jupyter.analysis.kernels import kernels

        return kernels(self.tables, largest, by)

    def slowdown(self, largest: int = 20, by: str | Sequence[str] = "rank") -> pd.DataFrame:
        """Compute kernels beside communication against alone: `analysis.kernels.slowdown`."""
        from dtscope_jupyter.analysis.kernels import slowdown

        return slowdown(self.tables, largest, by)

    def copies(self, by: str | Sequence[str] = "rank") -> pd.DataFrame:
        """Implicit copies: `analysis.copies.copies`."""
        from dtscope_jupyter.analysis.copies import copies

        return copies(self.tables, by)

    def buckets(self, by: str | Sequence[str] = "rank") -> pd.DataFrame:
        """DDP's buckets in their order: `analysis.buckets.buckets`."""
        from dtscope_jupyter.analysis.buckets import buckets

        return buckets(self.tables, by)

    def clocks(self) -> pd.DataFrame:
        """How far each rank's clock is off, and how sure that is: `analysis.clocks.clocks`."""
        from dtscope_jupyter.analysis.clocks import clocks

        return clocks(self.tables)

    def compare(self, other: Run) -> Comparison:
        """What changes from this run to the other: an object with `table()`, `figure()` and a text."""
        if not isinstance(other, Run):
            raise DtscopeError(f"a {type(other).__name__} is no run: compare with what dts.open gave, e.g. run.compare(dts.open(PATH))")
        from dtscope_jupyter.analysis.compare import compare
        from dtscope_jupyter.comparison import Comparison

        return Comparison((self.name, other.name), tuple(compare(self.tables, other.tables)))

    def diagnose(self, *, live: bool = False) -> Diagnosis:
        """What is wrong, most costly first, with a picture for notebooks: `diagnosis.diagnose`.

        Args:
            live: Whether the run goes on: collectives that are open are then judged by the clock of now.
        """
        from dtscope_jupyter import ending
        from dtscope_jupyter.diagnosis import diagnose

        found = diagnose(self.tables, topology=self.topology, live=live)
        ended = ending.sentence(self.attempt.meta, found.findings) if self.attempt else ""
        return replace(found, ended=ended, picture=self._picture)

    def _picture(self, diagnosis: Diagnosis) -> bytes:
        from dtscope_jupyter.view.report import Report

        return Report(self, diagnosis=diagnosis).png

    def figure(self, name: str, **options: Any) -> go.Figure:
        """A plotly figure by the name of a panel: `view.figures.figure`."""
        from dtscope_jupyter.view.figures import figure

        return figure(self, name, **options)

    def show(self, panel: str = "overlap", *, rank: int | None = None, step: int | None = None) -> LiveView | go.Figure:
        """The live panel, at a rank and step: `view.live`; the topology, which has no steps, is its figure."""
        if panel == "topology":
            return self.figure(panel)
        from dtscope_jupyter.view import live

        return live.show(self, panel, rank=rank, step=step)

    def report(self, theme: str | None = None) -> Report:
        """The static report, PNG and text, in light, dark or high_contrast: `view.report.Report`."""
        from dtscope_jupyter.view.report import Report

        return Report(self, theme=theme)

    def report_json(self) -> dict[str, Any]:
        """Findings and summary as plain JSON values, as docs/report.schema.json has them: `export.report.report`."""
        from dtscope_jupyter.export.report import report

        return report(self)

    def save_html(self, path: str | PathLike[str]) -> Path:
        """Writes one offline file with the interactive panels and returns its path: `view.live`."""
        from dtscope_jupyter.view import live

        return live.save_html(self, Path(path))

    def export(self, form: str, path: str | PathLike[str] | None = None) -> Path:
        """Writes the run as perfetto, parquet, json, html or figures and returns where: `export.write`."""
        from dtscope_jupyter import export

        return export.write(self, form, path)

    def __repr__(self) -> str:
        """Name, ranks and world size."""
        return f"Run({self.name!r}, world_size={self.world_size}, ranks={len(self.ranks)})"


def open(paths: PathsLike) -> Run:  # noqa: A001
    """Opens a run directory, the newest of a folder of runs or of what holds dtscope-runs, traces and dumps, or a folder of them.

    Raises:
        DtscopeError: Nothing there, or nothing that can be read; one line.
    """
    found = _paths(paths)
    for path in found:
        if not _exists(path):
            message = f"{str(path)[:200]!r} does not exist; name a run directory, traces, dumps or a folder of them"
            raise DtscopeError(message)
    if len(found) == 1 and found[0].is_dir():
        directory = _run_directory(found[0]) or _run_below(found[0])
        if directory is not None:
            return Run.of_directory(directory)
    _refuse_parts(found)
    return _imported(found)


def _refuse_parts(paths: list[Path]) -> None:
    """What a run directory holds is no trace: a directory among other paths, and a part of one, would be read as nothing."""
    for path in paths:
        if len(paths) > 1 and path.is_dir() and rundir.is_recorded(path):
            message = f"{str(path)!r} is a run directory, which is opened alone; see two runs side by side with run.compare(other)"
            raise DtscopeError(message)
        run = _run_around(path.absolute())
        if run is not None and rundir.is_recorded(run) and not _has_traces(path):
            raise DtscopeError(f"{str(path)[:200]!r} is a part of the run directory {run.name!r}; open that")


def _run_around(path: Path) -> Path | None:
    """Where the run lies that `path` is the description, a table or a rank's folder of, by its name."""
    if path.name == "run.json" or rundir.is_rank(path):
        return path.parent
    return path.parent.parent if path.suffix in {".arrows", ".index"} else None


def _has_traces(path: Path) -> bool:
    from dtscope_jupyter.reading import finished_files

    return path.is_dir() and bool(finished_files(path))


def _paths(paths: object) -> list[Path]:
    given: list[Any] = [paths] if isinstance(paths, (str, PathLike)) else list(paths) if isinstance(paths, Iterable) else [paths]
    wrong = [one for one in given if not isinstance(one, (str, PathLike))]
    if wrong or not given:
        message = f"{wrong[0]!r} is no path" if wrong else "no path given"
        raise DtscopeError(f"{message}; name a run directory, traces or dumps")
    return [Path(one).expanduser() for one in given]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False


def _run_directory(path: Path) -> Path | None:
    """The folder itself where it is a run, else the newest run in it."""
    if rundir.is_recorded(path):
        return path
    runs = [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink() and rundir.is_recorded(entry)]
    return max(runs, key=lambda run: (rundir.read_json(run / "run.json").get("created_ns") or 0, run.name), default=None)


def _run_below(path: Path) -> Path | None:
    """The newest run that was made in a folder which holds no traces itself."""
    from dtscope_jupyter.ingest import files

    if not (path / rundir.RUNS).is_dir() or any(map(files.is_known, path.iterdir())):
        return None
    return _run_directory(path / rundir.RUNS)


def _imported(paths: list[Path]) -> Run:
    from dtscope_jupyter import ingest

    found = ingest.read(paths)
    name = paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"
    path = paths[0] if len(paths) == 1 else None
    return Run(found.tables, name=name, path=path, world_size=found.world_size, topology=found.topology)
