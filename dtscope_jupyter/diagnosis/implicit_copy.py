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
from dtscope_jupyter.diagnosis import device_copies
from dtscope_jupyter.diagnosis.finding import Finding, Severity, megabytes, milliseconds, name_ranks, severity

if TYPE_CHECKING:
    import pandas as pd

    from dtscope_jupyter.analysis.columns import Ints
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
    frame = _seen(evidence)
    frame = frame.assign(cause=[_cause(cause, what) for cause, what in zip(frame["cause"], frame["what"], strict=True)])
    found = [_finding(evidence, str(cause), rows) for cause, rows in frame.groupby("cause") if cause != "other"]
    return [finding for finding in found if finding is not None]


def _seen(evidence: Evidence) -> pd.DataFrame:
    """All copies; where a profiler saw the device, those for the sake of communication by their time there."""
    import pandas as pd

    frame = copies(evidence.tables)
    if not evidence.profile.device:
        return frame
    on_device = device_copies.copies(evidence.tables)
    frame = frame[frame["cause"] != "bucket_copy"]
    return pd.concat([each for each in (frame, on_device) if len(each)] or [frame], ignore_index=True)


def _any(evidence: Evidence) -> bool:
    tables = evidence.tables
    strided = np.nan_to_num(columns.reals(tables["collectives"], "contiguous"), nan=1.0) == 0
    copied = columns.is_any(tables["host"], "kind", ("copy",)).any() or columns.is_any(tables["spans"], "kind", ("memcpy",)).any()
    return bool(strided.any() or copied or len(tables["spans"]))


def _on_device(evidence: Evidence) -> bool:
    devices = evidence.tables["devices"]["device"].to_pylist()
    return evidence.profile.device or any(str(device).startswith("cuda") for device in devices)


def _cause(cause: str, what: object) -> str:
    if cause != "other":
        return cause
    text = str(what).lower()
    return next((name for name, words in _WORDS.items() if any(word in text for word in words)), "other")


def _finding(evidence: Evidence, cause: str, rows: pd.DataFrame) -> Finding | None:
    touched = _touched(evidence, cause)
    steps, looked = max(len(touched), 1), max(_looked(evidence, cause), 1)
    each = rows.groupby("rank").agg(bytes=("bytes", "sum"), ms=("total_ms", "sum"), count=("count", "sum")) / steps
    rate = _DEVICE_GB_S if _on_device(evidence) else _HOST_GB_S
    seen = bool(each["ms"].max() > 0)
    ms = each["ms"] if seen else 2 * each["bytes"] / rate / 1e6
    typical = evidence.steps.typical_ms
    cost = float(ms.max()) if seen else min(float(ms.max()), _MOST_ESTIMATED * typical)
    moved = float(each["bytes"].max())
    if cause == "bucket_copy" and cost < _BUCKET_SHARE * typical:
        return None
    if cost < _SHARE * typical and not (cause == "non_contiguous" and moved >= _LAYOUT_BYTES):
        return None
    ranks = tuple(sorted(int(rank) for rank in each.index[each["bytes"].to_numpy() > 0])) or tuple(sorted(map(int, each.index)))
    line = next((str(one) for one in rows["line"] if isinstance(one, str)), None)
    mean = cost * min(steps / looked, 1.0)
    grade = severity(mean, typical) if seen else min(severity(mean, typical), Severity.WARNING, key=list(Severity).index)
    told: dict[str, Any] = {
        "bytes_a_step": moved,
        "ms_a_step": cost,
        "copies_a_step": float(each["count"].max()),
        "measured": seen,
        "line": line,
        "what": sorted({str(what) for what in rows["what"]})[:5],
        "step_ms": typical,
    }
    layout = _layout(evidence) if cause == "non_contiguous" else {}
    told |= {"layout": layout} if layout else {}
    return Finding(
        kind="implicit_copy",
        cause=cause,
        ranks=ranks,
        severity=grade,
        confidence=0.9 if seen else 0.75,
        cost_ms=cost,
        steps=tuple(touched.tolist()),
        evidence=told,
        advice=ADVICE[cause],
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {WHAT[cause]}, {megabytes(moved)} a step"
        f"{', ' + milliseconds(cost) if cost > 0 else ''}{' at ' + line if line else ''}."
        f"{_unlike(layout)}",
    )


def _touched(evidence: Evidence, cause: str) -> Ints:
    """Steps in which such copies were seen; all where the rows don't tell."""
    calls, host, spans = (evidence.tables[name] for name in ("collectives", "host", "spans"))
    code, details = columns.codes(host, "detail")
    named = np.array([_cause("other", text) == cause for text in details] + [False])[code]
    found = [columns.ints(host, "step")[named & columns.is_any(host, "kind", ("copy",))]]
    if cause == "non_contiguous":
        found.append(columns.ints(calls, "step")[columns.reals(calls, "contiguous") == 0])
    if cause == "pageable_host_memory":
        found.append(columns.ints(spans, "step")[columns.is_any(spans, "kind", ("memcpy",))])
    steps = np.intersect1d(np.concatenate(found), evidence.steps.ids)
    return steps if len(steps) else evidence.steps.ids


def _looked(evidence: Evidence, cause: str) -> int:
    """Steps in which such copies would have been seen: those with recorded collectives, of strided inputs."""
    if cause != "non_contiguous":
        return len(evidence.steps.ids)
    steps = columns.distinct(columns.ints(evidence.tables["collectives"], "step"))
    return int(np.isin(steps, evidence.steps.ids).sum()) or len(evidence.steps.ids)


def _layout(evidence: Evidence) -> dict[str, Any]:
    """The first collective to which some ranks give a contiguous tensor and others do not; {} where there is none."""
    table = evidence.tables["collectives"]
    flag, seq = columns.reals(table, "contiguous"), columns.ints(table, "seq")
    group, names = columns.codes(table, "process_group")
    known = np.flatnonzero(np.isfinite(flag) & (seq != columns.NONE) & (group >= 0))
    order = known[np.lexsort((flag[known], seq[known], group[known]))]
    same = (group[order][1:] == group[order][:-1]) & (seq[order][1:] == seq[order][:-1])
    unlike = order[1:][same & (flag[order][1:] != flag[order][:-1])]
    if not len(unlike):
        return {}
    row = unlike[np.argmin(seq[unlike])]
    mine = known[(group[known] == group[row]) & (seq[known] == seq[row])]
    strided = mine[flag[mine] == 0]
    first = table.slice(int(strided[0]), 1).select(["operation", "shape", "dtype", "line"]).to_pylist()[0]
    rank = columns.ints(table, "rank")
    return {
        "process_group": names[int(group[row])], "seq": int(seq[row]), **first,
        "strided_ranks": sorted(set(rank[strided].tolist())), "contiguous_ranks": sorted(set(rank[mine[flag[mine] == 1]].tolist())),
    }  # fmt: skip


def _unlike(layout: dict[str, Any]) -> str:
    if not layout:
        return ""
    tensor = " ".join(str(layout[name]) for name in ("dtype", "shape") if layout[name])
    who = name_ranks(tuple(layout["strided_ranks"])).lower()
    give = "gives" if len(layout["strided_ranks"]) == 1 else "give"
    at = f" at {layout['line']}" if layout["line"] else ""
    return (
        f" The layout differs between ranks: {layout['operation']} {layout['seq']} of process group {layout['process_group']} "
        f"gets {tensor or 'a tensor'}{at}, of which {who} {give} a strided slice and the others a contiguous one."
    )
