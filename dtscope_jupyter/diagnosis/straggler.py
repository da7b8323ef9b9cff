# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Straggler: a rank that all others wait for, and what it did instead of arriving.

Lateness alone accuses nobody: a rank whose host launches a little slower than its peers' comes last everywhere
while nothing is won by looking at it. A finding needs steps enough, a lateness beyond the noise, and a reason:
something that the rank did in that time and the others did not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.diagnosis import blame, periodic, queue, told
from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.late import Late, others, positive, rhythm, stretch, surely
from dtscope_jupyter.diagnosis.steps import middle

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

_FEWEST_STEPS = 2
_LASTING = 6
"""In shorter stretches of a longer run only a cause that the host tells itself, or a large loss, counts."""
_STEADY, _STEADY_FEW, _FEW = 0.75, 1.0, 5
"""Share of a stretch's steps in which the rank is late: all of them where they are fewer than five."""
_SHARE, _SHARE_IMBALANCE, _SHARE_UNKNOWN, _SHARE_UNSEEN = 0.02, 0.05, 0.10, 0.25
_MOST, _NEARLY_ALL, _PART = 0.5, 0.8, 0.6
_IRREGULAR = ("one step", "some steps")
_IMBALANCE = ("compute", "slow_device")
"""Ranks of healthy runs differ by a few per cent in the same work; with a host's own word for a cause less is enough."""
_BEYOND_CHANCE = 3.0
"""Standard deviations of a stretch's mean beyond the largest that pure chance shows among all ranks and stretches."""
_UNEVEN, _SURELY_MORE = 2.0, 1.1
_ALONE_SIGMAS, _ALONE_SHARE = 8.0, 0.25
"""A single late step counts where it is beyond so many sigmas and such a share of a step."""


@dataclass(frozen=True)
class _Suspect:
    row: int
    columns: Ints
    pattern: str
    doubtful: bool = False
    common: bool = False
    began: bool = False


def find(evidence: Evidence) -> list[Finding]:
    """Stragglers, each with cause, steps and cost."""
    usable = np.flatnonzero(evidence.steps.usable)
    if len(evidence.ranks) < 2 or len(usable) < _FEWEST_STEPS or not evidence.pairs.count:  # noqa: PLR2004 - nobody to wait
        return []
    late = Late(evidence)
    found = _find(evidence, late)
    if _uneven(evidence, usable):
        found = _telling(found, _find(evidence, Late(evidence, evenly=True)))
    blamed = {rank for each in found for rank in each.ranks}
    found += [_by_word(evidence, late, each) for each in told.find(evidence, late, usable, blamed)]
    if not np.isfinite(evidence.steps.column("thread_delay_ms")).any():
        return found
    blamed = {rank for each in found for rank in each.ranks}
    starved = [each for each in _find(evidence, Late(evidence, starved=True)) if each.evidence["category"] in ("cpu_delay", "own")]
    return [*found, *(each for each in starved if not blamed & set(each.ranks))]


def _uneven(evidence: Evidence, usable: Ints) -> bool:
    """Whether steps are of very different length, on all ranks alike."""
    low, high = np.quantile(middle(evidence.steps.duration[:, usable], 0), (0.1, 0.9))
    return bool(high > _UNEVEN * low)


def _telling(found: list[Finding], evenly: list[Finding]) -> list[Finding]:
    """Of a rank's findings the latter, where that explains surely more of what was lost: a fault makes steps uneven by itself."""
    by_rank = {each.ranks: each for each in found}
    more = [each for each in evenly if each.ranks not in by_rank or _lost(each) > _SURELY_MORE * _lost(by_rank[each.ranks])]
    return list((by_rank | {each.ranks: each for each in more}).values())


def _lost(finding: Finding) -> float:
    return finding.cost_ms * len(finding.steps)


def _by_word(evidence: Evidence, late: Late, word: told.Told) -> Finding:
    """What a host tells of its rank, as a finding."""
    cause, coverage = blame.CATEGORIES[word.category], min(word.excess_ms / word.cost_ms, 1.0)
    reason = blame.Reason(cause, word.category, coverage, host_bound=False, excess={word.category: word.excess_ms})
    return _told(evidence, late, _Suspect(word.row, word.columns, "each step"), reason, word.cost_ms)


def _find(evidence: Evidence, late: Late) -> list[Finding]:
    """A delay that shows most in the step after is the fault of the step before, if that has a reason."""
    usable = late.known
    beats = periodic.find(late, usable)
    suspects = [suspect for row in _candidates(late, usable) if (suspect := _suspect(late, row, usable, beats.get(row)))]
    shares = _shares(late, suspects)
    findings = [_finding(evidence, late, suspect, share) for suspect, share in zip(suspects, shares, strict=True)]
    for number, suspect in enumerate(suspects):
        if findings[number] is None and suspect.row in beats:
            before = np.intersect1d(suspect.columns - 1, usable)
            findings[number] = _finding(evidence, late, replace(suspect, columns=before), shares[number])
    return [finding for finding in findings if finding is not None]


def _candidates(late: Late, usable: Ints) -> list[int]:
    net = late.net[:, usable]
    floor = _SHARE * late.evidence.steps.typical_ms
    return [int(row) for row in np.flatnonzero((np.nan_to_num(net) > floor).any(1))]


def _suspect(late: Late, row: int, usable: Ints, beat: tuple[int, Ints] | None) -> _Suspect | None:
    """Who is late by the steps' own times (`beat`: its period and its steps), unless the collectives that were recorded say otherwise.

    Where none of a lasting stretch was recorded, its large loss counts if it is the same in each step and was not there before.
    """
    suspect = _Suspect(row, beat[1], f"every {beat[0]} steps") if beat else _by_steps(late, row, usable)
    if suspect is None:
        return None
    confirmed = late.confirmed(row, suspect.columns)
    if confirmed is None and suspect.pattern == "each step":
        return replace(suspect, doubtful=True, began=not suspect.doubtful and late.began(row, suspect.columns))
    return None if confirmed is False else suspect


def _by_steps(late: Late, row: int, usable: Ints) -> _Suspect | None:
    net = late.net[row, usable]
    threshold = max(_SHARE * late.evidence.steps.typical_ms, 2 * np.nan_to_num(late.noise))
    first, end = stretch(net, threshold)
    if _persists(late, net[first:end], threshold):
        inside = first + np.flatnonzero(positive(net[first:end]))
        lapses = _alone(late, row, usable)
        if lapses is not None and _outweigh(late.net[row], lapses.columns, usable[inside]):
            return lapses
        lasting = end - first >= min(_LASTING, len(usable))
        return _Suspect(row, usable[inside], "each step", doubtful=not lasting)
    return _alone(late, row, usable)


def _persists(late: Late, net: Reals, threshold: float) -> bool:
    """Late in most steps of a stretch (in all of a short one), and by more than chance gives one of so many stretches."""
    if len(net) < _FEWEST_STEPS:
        return False
    needed = _STEADY if len(net) >= _FEW else _STEADY_FEW
    ranks, steps = late.net.shape
    chance = np.sqrt(2 * np.log(ranks * steps**2)) + _BEYOND_CHANCE
    sure = max(threshold, float(chance * np.nan_to_num(late.noise) / np.sqrt(len(net))))
    return float(positive(net - threshold / 2).mean()) >= needed and float(np.nanmedian(net)) > sure


def _outweigh(net: Reals, lapses: Ints, stretch: Ints) -> bool:
    """Whether a part of the steps makes nearly all of what a stretch costs: then that part is the fault, not the stretch."""
    rest = np.maximum(net[np.setdiff1d(stretch, lapses)], 0).sum()
    few = len(np.intersect1d(stretch, lapses)) <= _PART * len(stretch)
    return few and float(net[lapses].sum()) > _NEARLY_ALL / (1 - _NEARLY_ALL) * float(rest)


def _alone(late: Late, row: int, usable: Ints) -> _Suspect | None:
    far = np.flatnonzero(np.nan_to_num(late.net[row, usable]) > _far(late))
    if not len(far) or len(usable) < _FEW:
        return None
    rest = np.delete(np.nan_to_num(late.net[:, usable]), row, axis=0) > _far(late)
    rate, count = (1 + int(rest.sum())) / (1 + rest.size), len(usable)
    period = rhythm(late.evidence.steps.ids[usable[far]])
    period = 0 if period and periodic.by_chance(len(far), len(far), rate, len(late.net) * count) else period
    pattern = f"every {period} steps" if period else ("one step" if len(far) == 1 else "some steps")
    chance = len(far) >= periodic.FEWEST and periodic.by_chance(len(far), count, rate, len(late.net))
    return _Suspect(row, usable[far], pattern, common=not period and (chance or _happens_to_all(late, row, usable, usable[far])))


def _happens_to_all(late: Late, row: int, usable: Ints, columns: Ints) -> bool:
    """Whether another rank is as far behind, by half, at half as many times and without rhythm: then it is noise and no rank's fault."""
    net = np.nan_to_num(late.net[:, usable])
    alike = net > max(_far(late), float(np.median(late.net[row, columns])) / 2)
    alike[row] = False
    often = np.flatnonzero(alike.sum(1) >= len(columns) / 2)
    return any(not rhythm(late.evidence.steps.ids[usable[alike[one]]]) for one in often.tolist())


def _far(late: Late) -> float:
    return float(max(_ALONE_SIGMAS * np.nan_to_num(late.noise), _ALONE_SHARE * late.evidence.steps.typical_ms))


def _shares(late: Late, suspects: list[_Suspect]) -> list[float]:
    """Each suspect's cost: of a step with several, the largest lateness is shared in proportion, for it is lost once."""
    total = np.zeros(late.cost.shape[1])
    largest = np.zeros_like(total)
    for suspect in suspects:
        cost = np.maximum(np.nan_to_num(late.cost[suspect.row, suspect.columns]), 0)
        total[suspect.columns] += cost
        largest[suspect.columns] = np.maximum(largest[suspect.columns], cost)
    factor = np.divide(largest, total, out=np.ones_like(total), where=total > 0)
    return [float(np.mean(np.maximum(np.nan_to_num(late.cost[s.row, s.columns]), 0) * factor[s.columns])) for s in suspects]


def _finding(evidence: Evidence, late: Late, suspect: _Suspect, cost: float) -> Finding | None:
    reason = blame.reason(evidence, late, suspect.row, suspect.columns)
    typical = float(np.nanmedian(evidence.steps.duration[:, suspect.columns]))
    share = _share(late, suspect)
    if not _tenable(suspect, reason, cost / typical, share, seen=evidence.activity.device):
        return None
    if reason.cause in _IMBALANCE and _imbalance(evidence, late, suspect) < (_ALONE_SHARE if suspect.doubtful else _SHARE_IMBALANCE):
        return None
    return _told(evidence, late, suspect, reason, cost)


def _share(late: Late, suspect: _Suspect) -> float:
    """Of the steps of which something is known; what comes now and then is not taken to have come in the others."""
    known = len(late.known) if suspect.pattern == "each step" else int(late.evidence.steps.usable.sum())
    return len(suspect.columns) / known


def _told(evidence: Evidence, late: Late, suspect: _Suspect, reason: blame.Reason, cost: float) -> Finding:
    typical = float(np.nanmedian(evidence.steps.duration[:, suspect.columns]))
    share = _share(late, suspect)
    grade = _grade(evidence, suspect, reason, cost, share)
    ranks = evidence.name(np.array([suspect.row]))
    steps = evidence.step_numbers(suspect.columns)
    excess = 0.0 if reason.cause == "unknown" else reason.excess.get(reason.category, 0.0)
    told_ms = max(excess, 0.0) or cost
    what = blame.PHRASES[reason.words].format(time=milliseconds(told_ms))
    return Finding(
        kind="straggler",
        cause=reason.cause,
        ranks=ranks,
        severity=grade,
        confidence=_confidence(len(steps), cost, late.noise, reason.coverage),
        cost_ms=cost,
        steps=steps,
        evidence=_evidence(late, suspect, reason, typical) | {"told_ms": told_ms},
        advice=blame.ADVICE[reason.words],
        sentence=f"{name_ranks(ranks)} is late: {what} {_when(late.known, suspect, steps)}.",
    )


def priced(finding: Finding) -> Finding:
    """With what is won behind its sentence, once costs are settled: less than it does more of, where a part is hidden or shared."""
    typical, cost = float(finding.evidence["step_ms"]), finding.cost_ms
    lost = "" if milliseconds(float(finding.evidence["told_ms"])) == milliseconds(cost) else f" and lose {milliseconds(cost)} by it"
    without = f"without that a step takes {milliseconds(max(typical - cost, 0))} instead of {milliseconds(typical)}"
    return replace(finding, sentence=f"{finding.sentence} The others wait for it{lost}; {without}.")


def _grade(evidence: Evidence, suspect: _Suspect, reason: blame.Reason, cost: float, share: float) -> Severity:
    """By the share of a step; what comes now and then counts by its mean over all steps, unless it goes on right now.

    What a hypervisor takes from a CPU looks like a lapse of the rank's own: a small one without the host's word is information.
    """
    typical = float(np.nanmedian(evidence.steps.duration[:, suspect.columns]))
    doubtful = suspect.doubtful and not suspect.began
    seen, brief = evidence.activity.device, doubtful or (reason.words == "cpu_delay" and share < _MOST)
    lapse = suspect.pattern in _IRREGULAR and not evidence.on_device and cost * share < _SHARE_UNKNOWN * typical
    if _inferred(reason) and (brief or lapse) and not seen:
        return Severity.INFO
    now = evidence.live and suspect.columns[-1] >= len(evidence.steps.ids) - 1
    steady = suspect.pattern == "each step" and (seen or now or not doubtful)
    return severity(cost if steady else cost * share, typical)


def _inferred(reason: blame.Reason) -> bool:
    """Whether the cause follows from what is left of a step, and not from an interval that the host told."""
    return reason.cause in (*_IMBALANCE, "host_stall")


def _tenable(suspect: _Suspect, reason: blame.Reason, loss: float, share: float, *, seen: bool) -> bool:
    """Whether the reason carries an accusation: what the host tells itself always does, a difference in work if it is large and lasts.

    So does a large loss that began in the run and is the same in each step: a host that is slow for a while scatters.

    `loss` is of a step, `share` of the steps; `seen` says that a profiler saw the device, which leaves less to be unknown.
    """
    steady = suspect.pattern == "each step" and not suspect.doubtful
    if reason.cause == "unknown":
        if suspect.began:
            return loss >= _SHARE_UNSEEN
        least = _SHARE_UNKNOWN if seen else _SHARE_UNSEEN
        return steady and not reason.host_bound and loss >= least and (seen or share >= _NEARLY_ALL)
    if suspect.common and _inferred(reason):
        return False
    if reason.words == "cpu_delay":
        return steady and loss >= _SHARE_UNKNOWN
    return True


def _imbalance(evidence: Evidence, late: Late, suspect: _Suspect) -> float:
    """How much more work the rank surely has than the others, as a share: of the step, by what was lost, beyond the scatter of its steps.

    On CPUs of the others' CPU time too, whichever is less: it holds no wait for a core that something else had.
    """
    rows = suspect.row, suspect.columns
    share = surely(late.cost[rows] / middle(evidence.steps.duration, 0)[suspect.columns])
    used = evidence.steps.column("thread_cpu_ms")
    rest = others(used)
    if evidence.on_device or not np.isfinite(used[rows] - rest[rows]).any():
        return share
    return min(share, surely((used - rest)[rows] / np.where(rest[rows] > 0, rest[rows], np.nan)))


def _when(usable: Ints, suspect: _Suspect, steps: tuple[int, ...]) -> str:
    if suspect.pattern == "one step":
        return f"in step {steps[0]}"
    if suspect.pattern != "each step":
        return (
            f"in {suspect.pattern} since step {steps[0]}"
            if suspect.pattern.startswith("some")
            else f"{suspect.pattern} since step {steps[0]}"
        )
    until = "" if suspect.columns[-1] >= usable[-1] else f" to step {steps[-1]}"
    return f"in each step from step {steps[0]}{until}" if until else f"in each step since step {steps[0]}"


def _confidence(count: int, cost: float, noise: float, coverage: float) -> float:
    certain = 1 - 0.5 ** min(count, 8)
    clear = 1.0 if not np.isfinite(noise) or noise <= 0 else min(1.0, cost / (4 * noise))
    return round(float(np.clip(certain * (0.5 + 0.5 * clear) * (0.7 + 0.3 * min(coverage, 1.0)), 0.05, 0.99)), 2)


def _evidence(late: Late, suspect: _Suspect, reason: blame.Reason, typical: float) -> dict[str, object]:
    rows = suspect.row, suspect.columns
    return {
        "late_ms": float(middle(late.arrival[rows], 0)),
        "others_exposed_minus_own_ms": float(np.median(np.nan_to_num(late.deficit[rows]))),
        "noise_ms": late.noise,
        "step_ms": typical,
        "pattern": suspect.pattern,
        "category": reason.category,
        "excess_ms": {name: value for name, value in reason.excess.items() if name != queue.JUDGED},
        **({queue.JUDGED: reason.excess[queue.JUDGED]} if queue.JUDGED in reason.excess else {}),
        **reason.details,
    }
