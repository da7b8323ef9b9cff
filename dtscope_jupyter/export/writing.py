# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The door: a run and the name of a format in, the path of what was written out."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from dtscope_jupyter.run import Run

FORMATS = {"perfetto": ".pftrace", "parquet": "-parquet", "json": ".json", "html": ".html", "figures": "-figures"}
"""Each format, and what the name of its file or folder ends in."""


def write(run: Run, form: str, path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the run as perfetto, parquet, json, html or figures, and returns where.

    perfetto: one trace of all ranks, to be opened at ui.perfetto.dev. parquet: a folder with one file a table. json: summary and
    findings, as docs/report.schema.json has it. html: one offline file with the interactive panels. figures: a folder of plotly figures.

    Args:
        run: The run.
        form: One of `FORMATS`.
        path: The file or folder to write (an earlier one of the same name is replaced); by default RUN/export/NAME of a
            run directory, and NAME in the working directory of an import.

    Raises:
        DtscopeError: An unknown format, an optional package that is missing, or a place that can't be written.
    """
    if form not in FORMATS:
        raise DtscopeError(f"export format {form!r} is unknown; choose from {', '.join(FORMATS)}")
    target = Path(path).expanduser() if path is not None else _default(run, FORMATS[form])
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(run, form, target)
    except OSError as error:
        raise DtscopeError(f"can't write {str(target)!r}: {error.strerror or error}; name another path") from error
    return target


def _default(run: Run, suffix: str) -> Path:
    name = re.sub(r"[^\w.-]+", "-", run.name).strip("-.") or "run"
    if run.attempt is None:
        return Path.cwd() / f"{name}{suffix}"
    return run.attempt.path / "export" / f"{name}{suffix}"


def _write(run: Run, form: str, target: Path) -> None:
    if form in {"parquet", "figures"}:
        target.mkdir(mode=0o700, exist_ok=True)
        if form == "parquet":
            from dtscope_jupyter.export import parquet

            parquet.write(run.tables, target)
        else:
            from dtscope_jupyter.export import figures

            figures.write(run, target)
    elif form == "html":
        run.save_html(target)
    else:
        _write_file(run, form, target)


def _write_file(run: Run, form: str, target: Path) -> None:
    """Writes a file of its own beside the target and puts it in its place in one step (0600)."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            if form == "perfetto":
                from dtscope_jupyter.export import perfetto

                perfetto.write(run.tables, file)
            else:
                from dtscope_jupyter.export import report

                file.write(report.text(run).encode())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
