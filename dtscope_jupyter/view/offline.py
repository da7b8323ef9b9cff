# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A finished run as one message, and that as a page of its own with the panels' script inside."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.live_pack import Message, of_tables
from dtscope_jupyter.view.widget import STATIC

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.run import Run

SHOW_BYTES = 96 * 2**20
FILE_BYTES = 24 * 2**20
"""Rows of a page before compression; about a tenth of it remains."""
_ORDER = ("steps", "parameters", "groups", "clocks", "notes", "devices", "collectives", "host", "gradients", "gradient_tiles", "spans")
_SEEN = ("compute", "comm", "memcpy", "memset")
_LOG_BYTES = 64 * 1024
_MAP_CELLS = 16 * 2**20
"""As many as a page holds of one metric (js/src/standalone.ts)."""


def message(run: Run, limit: int) -> Message:
    """Every table as far as about `limit` bytes go, the newest steps of those that don't fit, and the findings."""
    tables: dict[str, pa.Table] = {}
    left, skipped = limit, 0
    for name in _ORDER:
        table = _drawn(name, run.tables[name])
        kept = _newest(table, left)
        tables[name], left, skipped = kept, left - kept.nbytes, skipped + len(table) - len(kept)
    assert set(tables) == set(schema.TABLES), "every table has its place"
    header = {"status": _status(run, skipped), "findings": [finding.to_dict() for finding in run.diagnose().findings], "log": _logs(run)}
    made = of_tables(tables, header)
    if len(tables["steps"]) < len(run.tables["steps"]):
        _add_map(made, run.tables["steps"])
    return made


def _add_map(made: Message, steps: pa.Table) -> None:
    """The whole map, of a run with too many steps to give their rows."""
    ranks, row = np.unique(steps["rank"].to_numpy(), return_inverse=True)
    step = steps["step"].to_numpy()
    first = int(step.min())
    shape = (len(ranks), int(step.max()) - first + 1)
    if shape[0] * shape[1] > _MAP_CELLS:
        return
    real = {name: steps[name].to_numpy(zero_copy_only=False).astype(float) for name in ("exposed_ms", "comm_ms", "overlap_ms")}
    took = pc.cast(pc.subtract(steps["end_ns"], steps["start_ns"]), pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(real["comm_ms"] > 0, real["overlap_ms"] / real["comm_ms"], np.nan)
    profiled = pc.fill_null(pc.equal(pc.cast(steps["source"], pa.string()), "profiler"), fill_value=False).to_numpy(zero_copy_only=False)
    # As in js/src/matrix.ts: the rank's own word, recorded collectives, a profiler.
    evidence = np.where(np.isnan(real["exposed_ms"]), np.nan, np.where(profiled, 2, np.where(np.isnan(real["comm_ms"]), 0, 1)))
    for metric, values in (("exposed", real["exposed_ms"]), ("ratio", ratio), ("step", took / 1e6), ("evidence", evidence)):
        cells = np.full(shape, np.nan, np.float32)
        cells[row, step - first] = values
        made.add_matrix(metric, ranks.tolist(), first, cells)


def write(run: Run, path: Path) -> Path:
    """The page; DtscopeError where it can't be written."""
    data = base64.b64encode(gzip.compress(message(run, FILE_BYTES).pack(), mtime=0)).decode()
    try:
        path.write_text(page(run.name, data), encoding="utf-8")
    except OSError as error:
        raise DtscopeError(f"can't write {str(path)!r}: {error.strerror}; choose another path") from error
    return path


def page(title: str, data: str) -> str:
    """The page's text around a packed message, gzipped and in base64."""
    script = (STATIC / "standalone.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    style = (STATIC / "widget.css").read_text(encoding="utf-8")
    return _PAGE.format(title=html.escape(title), policy=_policy(script), style=style, script=script, data=data)


def _drawn(name: str, table: pa.Table) -> pa.Table:
    """Without the spans that no panel draws."""
    if name != "spans" or not len(table):
        return table
    return table.filter(pc.is_in(pc.cast(table.column("kind"), pa.string()), pa.array(_SEEN)))


def _newest(table: pa.Table, limit: int) -> pa.Table:
    """The rows of the newest steps that fit in about `limit` bytes."""
    if table.nbytes <= limit or not len(table):
        return table
    rows = int(len(table) * max(limit, 0) / table.nbytes)
    if "step" not in table.column_names:
        return table.slice(len(table) - rows)
    steps = pc.fill_null(table.column("step"), -1)
    order = pc.sort_indices(steps, sort_keys=[("", "descending")]) if rows else pa.array([], pa.uint64())
    if not rows:
        return table.slice(0, 0)
    first = steps[order[rows - 1].as_py()].as_py()
    return table.filter(pc.greater(steps, first))


def _status(run: Run, skipped: int) -> dict[str, Any]:
    meta = run.attempt.meta if run.attempt else {}
    state = meta.get("state") or "finished"
    return {
        "title": run.name, "world_size": run.world_size, "backend": meta.get("backend"), "state": "finished" if state == "done" else state,
        "message": meta.get("message", ""), "live": False, "ranks": {}, "skipped": skipped, "damaged": 0,
    }  # fmt: skip


def _logs(run: Run) -> list[dict[str, Any]]:
    if run.attempt is None:
        return []
    found = []
    for rank in run.attempt.ranks():
        try:
            with rundir.open_regular(run.attempt.rank_path(rank) / "log.txt") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
                data = file.read(_LOG_BYTES)
        except OSError:
            continue
        found.append({"rank": rank, "text": data.decode(errors="replace")})
    return found


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 2200px; margin: 0 auto; padding: 12px 20px; background: #ffffff; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111518; }} }}
{style}
</style>
</head>
<body>
<main id="dtscope">Loading the run.</main>
<script type="text/plain" id="dtscope-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
