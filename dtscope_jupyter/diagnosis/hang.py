# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Hang: ranks stuck in a collective, the ranks that they wait for, and where those are.

Who waits for whom is a graph. From a rank's oldest open collective an arrow leads to every member that has not
enqueued it (its host is not there) and to every member whose oldest open one is earlier (its device is not
there). Guilty are the ranks that others wait for and that wait for nobody; a rank in an open send or receive waits
for its peer and is a victim, unless its device is behind.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter import schema
from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.columns import NONE
from dtscope_jupyter.diagnosis.evidence import Evidence
from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds, name_ranks
from dtscope_jupyter.diagnosis.pending import LEAST_S, Pending, exit_times, exits, groups, known_ranks, pending, point_to_point, vanished

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["HEARTBEATS", "Pending", "find", "overdue"]

HEARTBEATS = 3
"""So many heartbeats missed by a rank are a hang as well."""

_ASKED = (2, 15)
"""SIGINT and SIGTERM: somebody ended the process."""
_WENT_ON_NS = 1_000_000_000
"""A rank that does something else so long after its peers began to wait has gone past the collective."""
WHAT = {
    "host_stuck": "its host never got there",
    "never_called": "its program went past the collective",
    "device_stuck": "its device is still in an earlier collective",
    "process_died": "its process is gone",
    "unknown": "nothing is known of its doings",
}
ADVICE = {
    "host_stuck": "Look at the stack: the host waits for a lock, a file, the loader or another call before the collective.",
    "never_called": "Make every rank call the collective: look for a condition on the rank, an uneven loader (use join()), a return.",
    "device_stuck": "Look at the device: Xid errors in dmesg, a kernel that never ends, a failed link.",
    "process_died": "Read the end of the log; the other ranks can't go on.",
    "unknown": "Take stacks and a Flight Recorder dump of every rank: `%dtscope capture stacks` and `capture flight_recorder`.",
}

UNSEEN = f"While it hangs, attach to it and take its stack (`%dtscope capture stacks`): {ADVICE['host_stuck'].partition(': ')[2]}"
"""Of a run whose host is stuck where nobody took its stack yet; a dump has none, and its process is gone."""


@dataclass
class _Graph:
    """Arrows from a waiting rank to those that it waits for, by the reason."""

    host: dict[int, set[int]] = field(default_factory=dict)
    device: dict[int, set[int]] = field(default_factory=dict)
    unseen: set[int] = field(default_factory=set)

    def waits(self, rank: int) -> bool:
        """Whether the rank waits for anybody."""
        return bool(self.host.get(rank) or self.device.get(rank))

    def awaited(self, arrows: dict[int, set[int]]) -> set[int]:
        """Ranks that an arrow leads to."""
        return set().union(*arrows.values()) if arrows else set()


def overdue(tables: Mapping[str, pa.Table], now_ns: int) -> list[Pending]:
    """The collectives that hang at `now_ns`: pending longer than max(5 s, 10 x their usual time), longest waiting first.

    For whoever watches a live run: with the first one, stacks and Flight Recorder of every rank are to be saved. Reads `collectives`,
    `groups` and which ranks have rows; a run of a few ranks takes milliseconds.
    """
    evidence = Evidence({**schema.empty_tables(), **tables}, live=True)
    return [each for each in pending(evidence.tables, evidence.members) if each.overdue(now_ns)]


def find(evidence: Evidence, *, desynchronised: bool = False) -> list[Finding]:
    """One finding a cause; the ranks and the collective that shows it. None while nothing is overdue."""
    stuck = pending(evidence.tables, evidence.members)
    stuck = [each for each in stuck if _overdue(evidence, each)]
    if not stuck:
        return [] if desynchronised or evidence.live else _died(evidence)
    graph = _graph(evidence)
    guilty = _guilty(evidence, graph)
    if not guilty:
        return [] if desynchronised else [_finding(evidence, stuck, (), "unknown")]
    causes: dict[str, list[int]] = {}
    for rank in sorted(guilty):
        causes.setdefault(_cause(evidence, stuck, graph, rank), []).append(rank)
    return [_finding(evidence, stuck, tuple(ranks), cause) for cause, ranks in causes.items()]


def _died(evidence: Evidence) -> list[Finding]:
    """Ranks that a signal ended before others had come as far, where no open collective shows who waited for them.

    Or the only one that failed, by SIGKILL, which nobody gets for a bad ending of a whole run: what the others waited for is lost
    where they were ended themselves.
    """
    table = evidence.tables["steps"]
    rank, step = columns.ints(table, "rank"), columns.ints(table, "step")
    steps = {int(one): int(step[rank == one].max()) for one in np.unique(rank).tolist()}
    ended = exits(evidence.tables)
    dead = {one: code for one, code in ended.items() if code < 0 and -int(code) not in _ASKED}
    alone = [code for code in ended.values() if code] == [-signal.SIGKILL]
    furthest = max((at for one, at in steps.items() if one not in dead), default=-1)
    ranks = tuple(sorted(one for one in dead if steps.get(one, -1) < furthest or (alone and furthest >= 0)))
    if not ranks:
        return []
    codes = {one: int(dead[one]) for one in ranks}
    how = "came" if steps.get(ranks[0], -1) < furthest else "are known to have come"
    return [Finding(
        kind="hang", cause="process_died", ranks=ranks, severity=Severity.CRITICAL, confidence=0.9, cost_ms=0.0, steps=(),
        evidence={"exit_codes": codes, "last_step": {one: steps.get(one) for one in ranks}, "furthest_step": furthest},
        advice=ADVICE["process_died"],
        sentence=f"{name_ranks(ranks)} died: ended by signal {', '.join(str(-code) for code in codes.values())} "
        f"after step {steps.get(ranks[0], 'none')}, the others {how} to step {furthest}, {WHAT['process_died']}.",
    )]  # fmt: skip


def _overdue(evidence: Evidence, each: Pending) -> bool:
    """Live by the clock; in a record by how long other rows went on; in a dump alone, which is made at a hang, always."""
    if evidence.live:
        return each.overdue(time.time_ns())
    if any(exits(evidence.tables).get(rank) for rank in each.missing):
        return True
    last = _last_sign(evidence)
    return last is None or last - each.since_ns > LEAST_S * 1e9


def _last_sign(evidence: Evidence) -> int | None:
    """The newest time of any row that is no dump's, None where there are only dumps."""
    newest = [NONE]
    for name, column in (("steps", "end_ns"), ("devices", "time_ns"), ("notes", "time_ns"), ("host", "end_ns"), ("collectives", "end_ns")):
        newest += [int(columns.ints(evidence.tables[name], column).max(initial=NONE))]
    return None if max(newest) == NONE else max(newest)


def _graph(evidence: Evidence) -> _Graph:
    graph, present = _Graph(), known_ranks(evidence.tables)
    for group in groups(evidence.tables, evidence.members):
        for rank in group.oldest:
            graph.device.setdefault(rank, set()).update(group.behind(rank))
            graph.host.setdefault(rank, set()).update(group.missing(rank, present))
        graph.unseen |= set(group.members) - present
    return graph


def _guilty(evidence: Evidence, graph: _Graph) -> set[int]:
    device, host = graph.awaited(graph.device), graph.awaited(graph.host)
    victims = point_to_point(evidence.tables)
    found = {rank for rank in device if not graph.waits(rank)}
    found |= {rank for rank in host - victims if not graph.waits(rank)}
    return found or {rank for rank in device | host if not graph.waits(rank)} or graph.unseen


def _cause(evidence: Evidence, stuck: list[Pending], graph: _Graph, rank: int) -> str:
    ended, caught = exits(evidence.tables).get(rank), _caught(evidence, stuck, rank)
    if ended is not None and exit_times(evidence.tables).get(rank, NONE) < caught:
        return "never_called" if ended == 0 else "process_died"
    gone = vanished(evidence.tables)
    if rank in gone and not gone.issuperset(one for each in stuck for one in each.ranks):
        return "process_died"
    if rank in graph.awaited(graph.device):
        return "device_stuck"
    if rank in graph.unseen:
        return "unknown"
    return "never_called" if _went_on(evidence, stuck, rank, caught) else "host_stuck"


def _caught(evidence: Evidence, stuck: list[Pending], rank: int) -> int:
    """When a stack caught the rank alive while others waited for it: what it did afterwards, as the run was ended, is no cause of the hang.

    The end of time where no stack did.
    """
    since = min((each.since_ns for each in stuck if rank in (*each.missing, *each.behind)), default=NONE)
    host = evidence.tables["host"]
    mine = columns.is_any(host, "kind", ("stack",)) & (columns.ints(host, "rank") == rank)
    seen = columns.ints(host, "start_ns")[mine]
    seen = seen[seen > since + _WENT_ON_NS]
    return int(seen.min()) if since != NONE and len(seen) else int(np.iinfo(np.int64).max)


def _went_on(evidence: Evidence, stuck: list[Pending], rank: int, until: int) -> bool:
    """Whether the rank began other collectives after its peers had begun to wait for it, and before `until`."""
    waited = [each.since_ns for each in stuck if rank in each.missing]
    if not waited:
        return False
    table = evidence.tables["collectives"]
    mine = columns.ints(table, "rank") == rank
    begun = np.concatenate([columns.ints(table, column)[mine] for column in ("enqueue_ns", "start_ns")])
    newest = int(begun[begun < until].max(initial=NONE))
    return newest > min(waited) + _WENT_ON_NS


def _stack(evidence: Evidence, rank: int) -> tuple[str | None, str | None]:
    """Where the rank's newest stack says that it is: file:line, function."""
    host = evidence.tables["host"]
    rows = np.flatnonzero(columns.is_any(host, "kind", ("stack",)) & (columns.ints(host, "rank") == rank))
    for row in rows[np.argsort(-columns.ints(host, "start_ns")[rows], kind="stable")].tolist():
        if host["line"][row].as_py():
            return host["line"][row].as_py(), host["detail"][row].as_py()
    return None, None


def _finding(evidence: Evidence, stuck: list[Pending], ranks: tuple[int, ...], cause: str) -> Finding:
    shown = [each for each in stuck if set(ranks) & {*each.missing, *each.behind, *each.unseen}] or stuck
    each = shown[0]
    lines = {rank: line for rank in ranks if (line := _stack(evidence, rank)[0])}
    where = (
        "".join(f", rank {rank} is at {line}" for rank, line in lines.items())
        if len(ranks) > 1
        else "".join(f", it is at {line}" for line in lines.values())
    )
    waiting = sorted({rank for one in shown for rank in one.ranks} - set(ranks))
    told: dict[str, Any] = {
        "process_group": each.process_group,
        "seq": each.seq,
        "operation": each.operation,
        "waiting": waiting,
        "groups": len(shown),
        "line": each.line,
        "stacks": lines,
        "usual_ms": each.usual_ms,
        "since_ns": each.since_ns,
    }
    begun = f"{each.operation} {each.seq} of process group {each.process_group}"
    who = name_ranks(ranks) if ranks else "No rank is missing"
    does = "died" if cause == "process_died" else "hangs" if len(ranks) == 1 else "hang"
    wait = "waits" if len(waiting) == 1 else "wait"
    what = WHAT[cause] if len(ranks) == 1 else WHAT[cause].replace("its", "their", 1)
    text = f"{who} {does}: {name_ranks(tuple(waiting)).lower()} {wait} in {begun}, {what}{where}."
    if not ranks:
        everyone = set(evidence.members.get(each.process_group, ())) <= set(waiting)
        text = f"{'All members' if everyone else name_ranks(tuple(waiting))} {'wait' if everyone else wait} in {begun} and it does not end"
        text += "." if everyone else ", though all members have called what they call there: perhaps something else."
    if evidence.live:
        text += f" Stuck for {milliseconds((time.time_ns() - each.since_ns) / 1e6)}."
    return Finding(
        kind="hang",
        cause=cause,
        ranks=ranks or tuple(waiting),
        severity=Severity.CRITICAL,
        confidence=0.4 if cause == "unknown" else 0.9,
        cost_ms=0.0,
        steps=(),
        evidence=told,
        advice=UNSEEN if cause == "host_stuck" and not lines and len(evidence.tables["steps"]) else ADVICE[cause],
        sentence=text,
    )
