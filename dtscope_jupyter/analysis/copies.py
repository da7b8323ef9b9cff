# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Copies that nobody asked for by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dtscope_jupyter.analysis.columns import NONE, Bools, Ints, codes, ints, is_any, reals, texts
from dtscope_jupyter.analysis.keys import columns_of, keys_of
from dtscope_jupyter.analysis.recorded import MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from dtscope_jupyter.analysis.activity import Tables

BY = ("rank", "step", "process_group", "operation", "phase")
_BUCKET = ("copy_bucket_to_grad", "mul_out")


def copies(tables: Tables, by: str | Sequence[str] = "rank") -> pd.DataFrame:
    """Implicit copies by cause.

    pageable_host_memory: device copies from or to memory that is not pinned; non_contiguous: collectives whose input had to be
    copied first; bucket_copy: DDP moving gradients to and from its buckets (gradient_as_bucket_view=False);
    other: copies that the rank's own collector saw, named by `what`. total = sum of the copies' own durations, 0 where it was
    not seen.

    Args:
        tables: The run's tables.
        by: One or several of rank, step, process_group, operation, phase; the last three are known of copies of a collective's
            input, the phase of what a profiler saw as well; elsewhere None.

    Returns:
        `by`, cause, what, count, bytes, total_ms, steps (that have any), line.

    Raises:
        DtscopeError: An unknown `by`.
    """
    keys = keys_of(by, BY)
    import pandas as pd

    parts = [_pageable(tables["spans"]), _buckets(tables["spans"]), _strided(tables["collectives"]), _recorded(tables["host"])]
    frame = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    done = frame.groupby([*keys, "cause", "what"], dropna=False, sort=True).agg(
        count=("ms", "size"), bytes=("bytes", "sum"), total_ms=("ms", "sum"), steps=("of_step", "nunique"), line=("line", "first"),
    )
    return done.reset_index()


def _rows(table: pa.Table, mask: Bools, cause: str, what: str, size: Callable[[pa.Table], Ints] | None = None) -> pd.DataFrame:
    import pandas as pd

    rows = table.filter(pa.array(mask))
    start, end = ints(rows, "start_ns"), ints(rows, "end_ns")
    length = np.where((start == NONE) | (end == NONE), 0, end - start)
    column = size(rows) if size else ints(rows, "bytes")
    return pd.DataFrame(columns_of(rows, BY) | {
        "of_step": reals(rows, "step"), "cause": cause, "what": texts(*codes(rows, what)),
        "bytes": np.where(column == NONE, 0, column), "ms": length / MS, "line": texts(*codes(rows, "line")),
    })


def _containing(table: pa.Table, name: str, parts: tuple[str, ...]) -> Bools:
    found, names = codes(table, name)
    wanted = np.array([any(part in text.lower() for part in parts) for text in names] + [False], dtype=bool)
    return wanted[found]


def _pageable(spans: pa.Table) -> pd.DataFrame:
    return _rows(spans, is_any(spans, "kind", ["memcpy"]) & _containing(spans, "copy", ("pageable",)), "pageable_host_memory", "copy")


def _buckets(spans: pa.Table) -> pd.DataFrame:
    return _rows(spans, is_any(spans, "kind", ["cpu_op"]) & _containing(spans, "name", _BUCKET), "bucket_copy", "name")


def _strided(collectives: pa.Table) -> pd.DataFrame:
    strided = np.asarray(collectives.column("contiguous").fill_null(True).to_numpy())  # noqa: FBT003
    found = _rows(collectives, ~strided.astype(bool), "non_contiguous", "operation")
    return found.assign(ms=0.0)


def _recorded(host: pa.Table) -> pd.DataFrame:
    return _rows(host, is_any(host, "kind", ["copy"]), "other", "detail")
