# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of a trace: from communication kernels and what the host says of them, or from gloo's annotations."""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dtscope_jupyter.ingest import operations
from dtscope_jupyter.ingest.columns import ABSENT, SpanKind
from dtscope_jupyter.ingest.events import NO_JSON
from dtscope_jupyter.ingest.operations import SENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtscope_jupyter.ingest.columns import Spans
    from dtscope_jupyter.ingest.events import Args
    from dtscope_jupyter.intervals import Ints

UNKNOWN_GROUP = "unknown"
MOST_RANKS = 10**6
"""More than that, and greater ranks, are taken for damage."""
_DEPTH = 8


@dataclass(slots=True)
class Call:
    """A host event that tells about a collective; times in ns since the trace's base."""

    row: int
    name: str
    start: int
    end: int
    thread: int
    args: Args


class Calls:
    """The host's events about collectives, found by External id or by thread and time."""

    def __init__(self, host: Spans, args: dict[int, Args], words: list[str]) -> None:
        """`args` by row of `host`."""
        found = (
            Call(row, words[host.name[row]], int(host.start[row]), int(host.end[row]), int(host.where[row]), arg)
            for row, arg in args.items()
        )
        self.all = sorted(found, key=lambda call: (call.start, -call.end))
        self._by_external: dict[int | None, Call] = {
            call.args.external_id: call for call in self.all if call.args.collective and call.args.external_id is not None
        }
        self._by_thread: dict[int, list[Call]] = defaultdict(list)
        for call in self.all:
            self._by_thread[call.thread].append(call)

    def around(self, thread: int, time: int) -> list[Call]:
        """The calls that `thread` was in at `time`, outermost first."""
        calls = self._by_thread.get(thread, [])
        place = bisect.bisect_right(calls, time, key=lambda call: call.start)
        return [call for call in calls[max(0, place - _DEPTH) : place] if call.end >= time]

    def of_external(self, external: int | None) -> list[Call]:
        """The call with this External id."""
        call = self._by_external.get(external)
        return [call] if call else []


def of_kernels(device: Spans, args: dict[int, Args], launches: Ints, host: Spans, calls: Calls, words: list[str]) -> list[dict[str, Any]]:
    """A row of `collectives` for each communication kernel; `launches` is each device span's row in `host` or ABSENT."""
    rows = np.flatnonzero(device.kind == SpanKind.comm)
    rows = rows[np.argsort(device.start[rows], kind="stable")]
    return [_of_kernel(device, row, args.get(row), int(launches[row]), host, calls, words) for row in rows.tolist()]


def _of_kernel(device: Spans, row: int, args: Args | None, launch: int, host: Spans, calls: Calls, words: list[str]) -> dict[str, Any]:
    launched = int(host.start[launch]) if launch != ABSENT else None
    about = calls.of_external(args.external_id) if args else []
    if not about and launched is not None:
        about = calls.around(int(host.where[launch]), launched)
    kernel = words[device.name[row]]
    return {
        **_message(_tellers(args, about), [call.name for call in about], kernel),
        "row": row,
        "enqueue_ns": min([call.start for call in about], default=launched),
        "thread": next((call.thread for call in about), None if launched is None else int(host.where[launch])),
        "start_ns": int(device.start[row]),
        "end_ns": int(device.end[row]),
        "state": "completed",
        "stream": int(device.where[row]),
    }


def _tellers(args: Args | None, about: list[Call]) -> list[Args]:
    """Who tells, the best informed first: the kernel, record_param_comms, an annotation."""
    told = [args] if args and args.collective else []
    told += [call.args for call in about if call.args.collective]
    return told + [call.args for call in about if not call.args.collective]


def _message(tellers: list[Args], calls: list[str], kernel: str) -> dict[str, Any]:
    best = next((args for args in tellers if args.collective), None)
    if best is None:
        shaped = next((args for args in tellers if _shapes(args)), None)
        named = next((name for name in calls if name != "record_param_comms"), None)
        name = operations.operation(named) if named else operations.operation_of_kernel(kernel)
        return {"operation": name, **(_by_shape(shaped) if shaped else {})}
    name = operations.operation(best.collective or "")
    name = name if name != "unknown" else operations.operation_of_kernel(kernel)
    dtype, size = operations.dtype(best.dtype)
    sent, received = (n * size if n is not None and size else None for n in (best.in_elements, best.out_elements))
    return {
        "operation": name,
        "bytes": operations.volume(name, sent, received, best.group_size),
        "dtype": dtype,
        "process_group": best.group,
        "group_size": _within(best.group_size, MOST_RANKS + 1),
        "seq": _within(best.seq, 2**63),
        "asynchronous": best.asynchronous,
        "peer": _within({"send": best.destination, "recv": best.source}.get(name), MOST_RANKS),
        "shape": next((shape for args in tellers if (shape := _shape(args))), None),
    }


def _within(value: int | None, bound: int) -> int | None:
    return value if value is not None and 0 <= value < bound else None


def of_gloo(calls: Calls) -> list[dict[str, Any]]:
    """A row for each gloo: annotation, enqueued by the first c10d:: call of its kind before it that has none yet.

    gloo calls a reduce-scatter an all_reduce; the c10d:: call knows better.
    """
    waiting: dict[str, deque[Call]] = defaultdict(deque)
    rows = []
    for call in calls.all:
        if call.name.startswith("c10d::"):
            waiting[_family(call.name)].append(call)
        elif call.name.startswith("gloo:"):
            queue = waiting[_family(call.name)]
            rows.append(_of_gloo(call, queue.popleft() if queue else None))
    return rows


def _of_gloo(call: Call, enqueued: Call | None) -> dict[str, Any]:
    name = operations.operation((enqueued or call).name)
    shaped = next((c.args for c in (call, enqueued) if c and _shapes(c.args)), None)
    return {
        "operation": name,
        "row": call.row,
        **(_by_shape(shaped) if shaped else {}),
        "enqueue_ns": enqueued.start if enqueued else None,
        "thread": enqueued.thread if enqueued else None,
        "start_ns": call.start,
        "end_ns": call.end,
        "state": "completed",
    }


def _family(name: str) -> str:
    ours = operations.operation(name)
    return "all_reduce" if ours == "reduce_scatter" else ours


def _by_shape(args: Args) -> dict[str, Any]:
    """`sent`: bytes of the input, of which the caller makes the message's size once it knows the group's."""
    count = operations.elements([s for s in _shapes(args) if s])
    dtype, size = operations.dtype(next((t for t in _decoded(args.types) if isinstance(t, str) and t and t != "Scalar"), None))
    return {"sent": count * size if count is not None and size else None, "dtype": dtype, "shape": _shape(args)}


def _shapes(args: Args) -> list[Any]:
    return [shape for shape in _decoded(args.shapes) if isinstance(shape, list) and shape]


def _shape(args: Args) -> str | None:
    return next((str(shape) for shape in _shapes(args)), None)


def _decoded(raw: msgspec.Raw) -> list[Any]:
    try:
        value = msgspec.json.decode(raw) if bytes(raw) else None
    except NO_JSON:  # nested as deep as the stack allows
        return []
    return value if isinstance(value, list) else []


def groups_told(tellers: Iterator[Args]) -> dict[str, dict[str, Any]]:
    """The process groups that events name: description, ranks and size by name."""
    groups: dict[str, dict[str, Any]] = {}
    for args in tellers:
        if args.group and args.group not in groups:
            groups[args.group] = {"process_group": args.group, "description": args.description, "ranks": ranks_in(args.ranks)}
    return groups


def ranks_in(text: object) -> list[int] | None:
    """The ranks in "[0, 1, 2]" or [0, 1, 2]; None where they are not all told ("[0, 1, ..., 7]") or none is."""
    if isinstance(text, str):
        try:
            text = msgspec.json.decode(text)
        except NO_JSON:
            return None
    if not isinstance(text, list) or not text or not all(isinstance(rank, int) and 0 <= rank < MOST_RANKS for rank in text):
        return None
    return text


__all__ = ["MOST_RANKS", "SENDS", "UNKNOWN_GROUP", "Call", "Calls", "groups_told", "of_gloo", "of_kernels", "ranks_in"]
