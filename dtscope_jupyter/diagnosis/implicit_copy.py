# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Implicit copies: bytes moved a step that nobody asked for by name.

`analysis.copies` finds them. Where the time of a copy was not seen, it is estimated from its bytes, read and written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.copies import copies
from dtscope_jupyter.diagnosis.finding import Finding, Severity, megabytes, milliseconds, name_ranks, severity

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.diagnosis.evidence import Evidence

_HOST_GB_S, _DEVICE_GB_S = 5.0, 1000.0
"""Rates for an estimate, low ones of current hosts and devices."""
_SHARE, _BUCKET_SHARE = 0.005, 0.05
"""Below these shares of a step a copy is not worth a line; every DDP run copies its buckets."""
_LAYOUT_BYTES = 1 << 10
_MOST_ESTIMATED = 0.1
"""An estimate of ours claims no more than a tenth of a step."""
_WORDS = {"dtype_cast": ("cast", "dtype", "_to_copy"), "pageable_host_memory": ("pageable",), "non_contiguous": ("contiguous",)}
ADVICE = {
    "non_contiguous": "Give the collective a contiguous tensor: keep the slice contiguous, or make the copy once outside of the step.",
    "dtype_cast": "Cast once, outside of the step, or communicate in the dtype that the tensor has.",
    "bucket_copy": "Set gradient_as_bucket_view=True: gradients then live in the buckets and are not copied.",
    "pageable_host_memory": "Pin the host memory (pin_memory=True in the loader, tensor.pin_memory()) and copy with non_blocking=True.",
}
WHAT = {
    "non_contiguous": "collectives are given non-contiguous tensors, which are copied first",
    "dtype_cast": "tensors are cast before they are sent",
    "bucket_copy": "gradients are copied to and from DDP's buckets",
    "pageable_host_memory": "the device copies from or to host memory that is not pinned",
}


def find(evidence: Evidence) -> list[Finding]:
    """One finding a cause, over the ranks that copy."""
    if not _any(evidence):
        return []
    frame = copies(evidence.tables)
    frame = frame.assign(cause=[_cause(cause, what) for cause, what in zip(frame["cause"], frame["what"], strict=True)])
    found = [_finding(evidence, str(cause), rows) for cause, rows in frame.groupby("cause") if cause != "other"]
    return [finding for finding in found if finding is not None]


def _any(evidence: Evidence) -> bool:
    tables = evidence.tables
    strided = np.nan_to_num(columns.reals(tables["collectives"], "contiguous"), nan=1.0) == 0
    copied = columns.is_any(tables["host"], "kind", ("copy",)).any() or columns.is_any(tables["spans"], "kind", ("memcpy",)).any()
    return bool(strided.any() or copied or (not evidence.activity.device and len(tables["spans"])))


def _on_device(evidence: Evidence) -> bool:
    devices = evidence.tables["devices"]["device"].to_pylist()
    return evidence.activity.device or any(str(device).startswith("cuda") for device in devices)


def _cause(cause: str, what: object) -> str:
    if cause != "other":
        return cause
    text = str(what).lower()
    return next((name for name, words in _WORDS.items() if any(word in text for word in words)), "other")


def _finding(evidence: Evidence, cause: str, rows: pd.DataFrame) -> Finding | None:
    steps = max(len(evidence.steps.ids), 1)
    each = rows.groupby("rank").agg(bytes=("bytes", "sum"), ms=("total_ms", "sum"), count=("count", "sum")) / steps
    rate = _DEVICE_GB_S if _on_device(evidence) else _HOST_GB_S
    seen = bool(each["ms"].max() > 0)
    ms = each["ms"] if seen else 2 * each["bytes"] / rate / 1e6
    typical = evidence.steps.typical_ms
    cost = float(ms.max()) if seen else min(float(ms.max()), _MOST_ESTIMATED * typical)
    moved = float(each["bytes"].max())
    if cause == "bucket_copy" and (evidence.activity.device or cost < _BUCKET_SHARE * typical):
        return None
    if cost < _SHARE * typical and not (cause == "non_contiguous" and moved >= _LAYOUT_BYTES):
        return None
    ranks = tuple(sorted(int(rank) for rank in each.index[each["bytes"].to_numpy() > 0])) or tuple(sorted(map(int, each.index)))
    line = next((str(one) for one in rows["line"] if isinstance(one, str)), None)
    grade = severity(cost, typical) if seen else min(severity(cost, typical), Severity.WARNING, key=list(Severity).index)
    told: dict[str, Any] = {
        "bytes_a_step": moved,
        "ms_a_step": cost,
        "copies_a_step": float(each["count"].max()),
        "measured": seen,
        "line": line,
        "what": sorted({str(what) for what in rows["what"]})[:5],
        "step_ms": typical,
    }
    mixed = cause == "non_contiguous" and len(ranks) < len(evidence.ranks)
    return Finding(
        kind="implicit_copy",
        cause=cause,
        ranks=ranks,
        severity=grade,
        confidence=0.9 if seen else 0.75,
        cost_ms=cost,
        steps=tuple(evidence.steps.ids.tolist()),
        evidence=told,
        advice=ADVICE[cause],
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {WHAT[cause]}, {megabytes(moved)} a step"
        f"{', ' + milliseconds(cost) if cost > 0 else ''}{' at ' + line if line else ''}."
        f"{' The layout differs between ranks.' if mixed else ''}",
    )
