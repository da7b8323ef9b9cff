# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How a run ended that went wrong, by each rank's own word.

A rank that records itself (DTRAINSCOPE_ENABLE, `watch`, a callback) writes at its end one row of kind exit in `notes`: of an uncaught
exception its type, message and line at once (value 1), of sys.exit the code, of any other end 0; `name` is the exception's type,
SystemExit, end, KeyboardInterrupt, or finish where recording ended before the process. A signal and os._exit leave no row: on the same
host, boot and process namespace /proc tells that the rank is gone, and a row named vanished, of the time of its last heartbeat, is
added as the run is read. Of ranks of `%%dtscope profile` run.json tells the exit codes, and those rows have no name.

The first failure that does not read like the loss of a peer is the cause (`hang`, process_died); who lost a peer is a victim. Where
there are victims alone, a rank that ended without an error after fewer steps, or as many while the others still called a collective, is
the cause (`hang`, never_called); else those without a word that have the fewest steps, at a confidence of 0.6 where it is not sure that
they are gone (nothing of them is newer than the failure, which was seconds ago), and in a live view only where it is. What no victim
and no failure tells of is not a finding: a rank that lives, one whose rows are late, an interrupt, a job that was ended as a whole. An
exit by `raise SystemExit(code)` or `exit()` is not told from a good end. A signal that ends all ranks within some ms, as a launcher's
may after a kill, can leave nobody to say who was first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds, name_ranks
from dtscope_jupyter.diagnosis.pending import INTERRUPTED, finished_steps
from dtscope_jupyter.errors import PEER_LOST
from dtscope_jupyter.vanished import NAME as VANISHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtscope_jupyter.diagnosis.evidence import Evidence

END = "ends"
"""Key of a finding's evidence that says that it is how the run ended."""
_MOST_TEXT = 400
_CLOCKS_NS = 1_000_000_000
"""Clocks of several hosts may differ so much, and nobody measured it: who ended first is then not asked."""
_QUIET_NS = 3_000_000_000
"""A rank that lives samples its device more often than this, and a word takes less on its way."""
_AHEAD = 1
"""A rank that ended in good order with more steps than this beyond a silent one has gone on without it."""
_RAISED = "Read the traceback in the output of {who}; the others only lost their peer, or were ended by the launcher."
_UNEVEN = (
    "Give every rank the same number of steps: DistributedSampler with drop_last=True, or train within `with Join([model])`; "
    "else look for a return, a break or sys.exit that one rank alone comes to."
)
_SILENT = (
    "torchrun names the signal at the end of its output: -9 with the out-of-memory killer in dmesg is lack of memory, -6 an abort of "
    "the backend after collectives that don't match, -11 a crash in native code."
)


@dataclass(frozen=True)
class _End:
    """One rank's: `name` is None where its launcher told it, `code` where there is none."""

    rank: int
    step: int | None
    time_ns: int
    name: str | None
    code: float | None
    text: str

    @property
    def lost(self) -> bool:
        """Whether it reads like the loss of a peer."""
        return any(mark in self.text for mark in PEER_LOST)


def find(evidence: Evidence, *, desynchronised: bool = False) -> list[Finding]:
    """One finding at most; none of a run that its launcher says the cause of, nor of silent ranks where collectives did not match."""
    ends = _ends(evidence)
    if any(each.name == INTERRUPTED for each in ends.values()):
        return []
    failed = [each for each in ends.values() if each.code]
    causes = sorted((each for each in failed if not each.lost), key=lambda each: each.time_ns)
    victims = [each for each in failed if each.lost]
    if causes:
        return [] if causes[0].name is None else [_raised(causes, victims)]
    silent = [] if desynchronised else _silent(evidence, ends, victims)
    orderly = _orderly(evidence, ends, victims, equal=not silent)
    if orderly:
        return [_uneven(evidence, orderly, victims)]
    return [_vanished(evidence, ends, silent, victims)] if silent else []


def _ends(evidence: Evidence) -> dict[int, _End]:
    """The last word of each rank."""
    notes = evidence.tables["notes"]
    rows = notes.filter(pa.array(columns.is_any(notes, "kind", ("exit",)))).to_pylist()
    return {
        row["rank"]: _End(row["rank"], row["step"], row["time_ns"] or 0, row["name"], row["value"], (row["text"] or "")[:_MOST_TEXT])
        for row in rows
    }


def _raised(causes: list[_End], victims: list[_End]) -> Finding:
    first = causes[0]
    ranks = tuple(sorted(each.rank for each in causes if each.text == first.text))
    others = [each for each in causes if each.rank not in ranks]
    at = f" in step {first.step}" if first.step is not None else ""
    later = [f"rank {each.rank} {each.text} {_after(first, each)}" for each in others[:1]]
    later += [_lost(victims, "it" if len(ranks) == 1 else "them")] if victims else []
    told = {"words": {each.rank: each.text for each in (*causes, *victims)}, "steps": {each.rank: each.step for each in causes}}
    advice = _RAISED.format(who=f"rank {first.rank}")
    return _finding("process_died", ranks, 0.95, told, advice, f"{name_ranks(ranks)} {first.text}{at}", later)


def _after(first: _End, later: _End) -> str:
    return f"{milliseconds(max(later.time_ns - first.time_ns, 0) / 1e6)} later"


def _lost(victims: Sequence[_End], whom: str) -> str:
    ranks = tuple(sorted(each.rank for each in victims))
    return f"{name_ranks(ranks).lower()} lost the connection to {whom}, which is a consequence"


def _orderly(evidence: Evidence, ends: dict[int, _End], victims: list[_End], *, equal: bool) -> list[_End]:
    """Ranks that ended well before their peers lost them, after fewer steps than those; after as many too where `equal`."""
    if not victims:
        return []
    latest = max(each.time_ns for each in victims) + _CLOCKS_NS
    furthest = max(_steps(evidence, each) or 0 for each in victims)
    fine = [each for each in ends.values() if each.code == 0 and each.time_ns <= latest]
    begun = _begun(evidence, victims)
    fewer = [each for each in fine if (done := _steps(evidence, each)) is not None and (done < furthest or (begun and done == furthest))]
    return fewer or (fine if equal else [])


def _begun(evidence: Evidence, victims: list[_End]) -> bool:
    """Whether a victim was in the backward of a step beyond those that it finished: it is in the loop, not behind it."""
    table = evidence.tables["steps"]
    rank, step, begin = (columns.ints(table, name) for name in ("rank", "step", "backward_start_ns"))
    return any(bool(((rank == each.rank) & (step >= (_steps(evidence, each) or 0)) & (begin != columns.NONE)).any()) for each in victims)


def _steps(evidence: Evidence, end: _End) -> int | None:
    """How many steps the rank has done: by its own word, else by its rows."""
    if end.step is not None:
        return end.step
    done = finished_steps(evidence.tables).get(end.rank)
    return None if done is None else done + 1


def _uneven(evidence: Evidence, orderly: list[_End], victims: list[_End]) -> Finding:
    ranks = tuple(sorted(each.rank for each in orderly))
    done = {each.rank: _steps(evidence, each) for each in (*orderly, *victims)}
    mine, theirs = done[ranks[0]], max(done[each.rank] or 0 for each in victims)
    others = tuple(sorted(each.rank for each in victims))
    verb = "was" if len(others) == 1 else "were"
    after = f" after {mine} step{'' if mine == 1 else 's'}," if mine is not None else ""
    inside = mine is not None and (theirs > mine or _begun(evidence, victims))
    went = f"{verb} in step {theirs}, counted from 0" if inside else "still called a collective"
    told = {"finished_steps": done, "words": {each.rank: each.text for each in (*orderly, *victims)}}
    text = f"{name_ranks(ranks)} ended, without an error,{after} while {name_ranks(others).lower()} {went}"
    later = [f"that {name_ranks(others).lower()} lost the connection is a consequence"]
    return _finding("never_called", ranks, 0.9, told, _UNEVEN, text, later)


def _silent(evidence: Evidence, ends: dict[int, _End], victims: list[_End]) -> list[int]:
    """Ranks without a word that others lost, or went on without; those with the fewest steps, as the launcher ended the rest.

    Live, a word may be on its way: only what is gone for sure counts.
    """
    told = [each for each in ends.values() if each.name is not None]
    gone = {each.rank for each in told if each.name == VANISHED}
    spoke = [each for each in told if each.name != VANISHED]
    if not spoke:
        return []
    unheard = gone if evidence.live else gone | {rank for rank in evidence.expected_ranks - set(ends) if _is_quiet(evidence, rank, victims)}
    done = finished_steps(evidence.tables)
    least = min((done.get(rank, -1) for rank in unheard), default=-1)
    first = sorted(rank for rank in unheard if done.get(rank, -1) == least)
    ahead = any(each.code == 0 and (each.step or 0) - 1 > least + _AHEAD for each in spoke)
    return first if victims or (ahead and gone.issuperset(first)) else []


def _is_quiet(evidence: Evidence, rank: int, victims: list[_End]) -> bool:
    """Whether a rank has given no sign since the others lost it, although there was time."""
    since = min((each.time_ns for each in victims), default=time.time_ns()) + _QUIET_NS
    signs = (("steps", "end_ns"), ("devices", "time_ns"), ("collectives", "end_ns"), ("notes", "time_ns"))
    newest = [
        columns.ints(table, column)[columns.ints(table, "rank") == rank].max(initial=columns.NONE)
        for table, column in ((evidence.tables[name], column) for name, column in signs)
    ]
    return time.time_ns() > since and max(newest) < since


def _vanished(evidence: Evidence, ends: dict[int, _End], silent: list[int], victims: list[_End]) -> Finding:
    ranks = tuple(silent)
    sure = all(rank in ends for rank in ranks)
    last = finished_steps(evidence.tables).get(ranks[0])
    after = f" (step {last} is its last on record)" if last is not None else ""
    how = "ended without a word" if sure else "left no word of an end"
    why = ": by a signal (out of memory, an abort, a crash) or os._exit" if sure else ""
    one_of = " (one of them first, the others with it)" if len(ranks) > 1 else ""
    later = [_lost(victims, "it" if len(ranks) == 1 else "them")] if victims else ["the others went on"]
    last_steps = {rank: finished_steps(evidence.tables).get(rank) for rank in ranks}
    told = {"last_step": last_steps, "words": {each.rank: each.text for each in victims}}
    return _finding("process_died", ranks, 0.9 if sure else 0.6, told, _SILENT, f"{name_ranks(ranks)} {how}{after}{why}{one_of}", later)


def _finding(cause: str, ranks: tuple[int, ...], sure: float, told: dict[str, Any], advice: str, text: str, later: list[str]) -> Finding:
    return Finding(
        kind="hang", cause=cause, ranks=ranks, severity=Severity.CRITICAL, confidence=sure, cost_ms=0.0, steps=(),
        evidence={END: True, **told}, advice=advice, sentence=f"{'; '.join((text, *later))}.",
    )  # fmt: skip
