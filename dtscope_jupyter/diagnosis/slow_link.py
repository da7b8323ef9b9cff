# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Slow link: collectives that take longer than they should although nobody comes late.

A transfer is a collective's shortest duration over its ranks, so that no waiting is in it. It is compared
with the same group at other times, with sister groups at the same time, and with what the devices' own link carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.diagnosis import links, slow_network, slow_pair, transport
from dtscope_jupyter.diagnosis.finding import Finding, Severity, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.late import stretch
from dtscope_jupyter.diagnosis.steps import position

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

_RATIO = 1.5
"""A group is slow where it takes half as long again as it should."""
_OF_KNOWN, _EXPECTED_OF_KNOWN = 0.2, 0.5
"""NCCL reaches half of a link's rate and more on large messages (H200, 4 ranks, beside compute: 0.58); a fifth is another transport."""
_FEWEST, _SHARE, _ONE_HOST = 2, 0.02, 8
_INSIDE = 0.75
_SCATTERS, _OF_EXTRA, _LASTING = 2.5, 0.3, 0.2
"""A step up is of more than 2.5 times the quartile distance of the logarithm on either side, is no slower host (which would show in
compute too), and lasts a fifth of the run or to its end."""
_MANY, _APART = 5, 1.15
"""Or nearly all of five steps and more lie above nearly all of five others and more."""
_LEAST, _CLEARLY = 0.1, 2.0
"""A change that few steps lie before or behind must be by a factor of two."""
_SIZES = 2.0
"""Messages must differ in size by so much to tell a start-up time from a rate."""
ADVICE = {
    "transport": "Check NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO names each transport.",
    "bandwidth": "Look at the link and at what else uses it; `%dtscope probe links` measures each pair.",
    "latency": "Use fewer and larger messages, and look at the route between these ranks.",
    "unknown": "Run `%dtscope probe links` to see which pair is slow.",
}


@dataclass(frozen=True)
class _Slow:
    group: str
    ranks: tuple[int, ...]
    cause: str
    columns: Ints
    lost: Reals
    confidence: float
    what: str
    evidence: dict[str, Any] = field(default_factory=dict)


def find(evidence: Evidence) -> list[Finding]:
    """Slow groups, those that are slow alike in one finding; of several ways to see that one is slow, the first that does."""
    found = _measured(evidence)
    pair = None if found else _pair(evidence)
    return transport.explain(evidence, [*found, *([pair] if pair else [])], ADVICE["transport"])


def _pair(evidence: Evidence) -> Finding | None:
    """The pair of ranks whose messages are slow, as far as anybody waits for them."""
    pair = slow_pair.find(evidence) if len(evidence.steps.ids) else None
    if pair is None:
        return None
    exposed = evidence.steps.column("exposed_ms")[position(evidence.ranks, np.array(pair.ranks))]
    paid = np.where(np.isfinite(exposed).any(0), np.nan_to_num(exposed).max(0), np.inf)
    touched = np.flatnonzero((pair.lost > 0) & evidence.steps.usable)
    typical = evidence.steps.typical_ms
    cost = float(np.minimum(pair.lost, paid)[touched].mean()) if len(touched) else 0.0
    if cost < _SHARE * typical:
        return None
    told = {
        "ratio": pair.ratio,
        "gb_s": pair.gb_s,
        "usual_gb_s": pair.usual_gb_s,
        "pairs": pair.pairs,
        "step_ms": typical,
        "process_groups": [],
    }
    return Finding(
        kind="slow_link",
        cause="bandwidth",
        ranks=pair.ranks,
        severity=severity(cost, typical),
        confidence=0.8,
        cost_ms=cost,
        steps=evidence.step_numbers(touched),
        evidence=told,
        advice=ADVICE["bandwidth"],
        sentence=f"{name_ranks(pair.ranks)}: messages between them take {pair.ratio:.2g} times as long a byte as between the other "
        f"{pair.pairs - 1} pairs, {milliseconds(cost)} a step.",
    )


def _measured(evidence: Evidence) -> list[Finding]:
    if not evidence.pairs.count or not len(evidence.steps.ids):
        return []
    transfers = links.Transfers(evidence)
    slow = [found for name in transfers.group[1] if (found := _slow(evidence, transfers, name))]
    slow = _by_steps(evidence, transfers, [each.group for each in slow]) or slow
    return [finding for each in _together(slow) if (finding := _finding(evidence, transfers, each))]


def _together(slow: list[_Slow]) -> list[list[_Slow]]:
    """Groups that became slow in the same step, within one, and by the same comparison."""
    sets: dict[tuple[tuple[str, ...], int], list[_Slow]] = {}
    for each in sorted(slow, key=lambda one: int(one.columns[0]) if len(one.columns) else 0):
        begun = int(each.columns[0]) if len(each.columns) else 0
        shown = tuple(sorted(each.evidence))
        near = [key for key in sets if key[0] == shown and begun - key[1] <= 1]
        sets.setdefault(near[0] if near else (shown, begun), []).append(each)
    return list(sets.values())


def _slow(evidence: Evidence, transfers: links.Transfers, name: str) -> _Slow | None:
    chosen = transfers.in_group(name)
    if len(chosen) < _FEWEST:
        return None
    return (
        _against_itself(evidence, transfers, name, chosen)
        or _against_hardware(evidence, transfers, name, chosen)
        or _against_sisters(evidence, transfers, name, chosen)
        or _against_any_wire(evidence, transfers, name, chosen)
    )


def _against_hardware(evidence: Evidence, transfers: links.Transfers, name: str, chosen: Ints) -> _Slow | None:
    link, ranks = links.known(evidence), evidence.members[name]
    reached = transfers.bus_gb_s(chosen)
    several = links.hosts(evidence, ranks) > 1 or len(ranks) > _ONE_HOST
    if link is None or several or not reached < _OF_KNOWN * link.gb_s:
        return None
    expected = transfers.wire_bytes[chosen] / (_EXPECTED_OF_KNOWN * link.gb_s * 1e6)
    lost = evidence.step_sum(np.maximum(transfers.ms[chosen] - expected, 0), evidence.pairs.pair_step[chosen])
    told = {"bus_gb_s": reached, "link_gb_s": link.gb_s, "link": link.link, "device": link.device, "source": link.source}
    what = f"{reached:.3g} GB/s on the bus, where {link.link} of {link.device} carries {link.gb_s:.0f}"
    return _Slow(name, ranks, "transport", np.flatnonzero((lost > 0) & evidence.steps.usable), lost, 0.9, what, told)


def _against_itself(evidence: Evidence, transfers: links.Transfers, name: str, chosen: Ints) -> _Slow | None:
    """The steps in which the group's transfers take longer than in the others, size by size."""
    step = evidence.pairs.pair_step[chosen]
    usual = evidence.step_sum(_usual(transfers, chosen, 0.1), step)
    usable = np.flatnonzero((usual > 0) & evidence.steps.usable)
    if len(usable) < 2 * _FEWEST:
        return None
    ratio = evidence.step_sum(transfers.ms[chosen], step)[usable] / usual[usable]
    found = _change(ratio)
    if found is None:
        return None
    first, end = found
    inside, outside = ratio[first:end], np.delete(ratio, np.arange(first, end))
    usual_ms, columns = usual[usable] * float(np.median(outside)), usable[first:end]
    lost = np.zeros(len(usual))
    lost[columns] = np.maximum(inside * usual[columns] - usual_ms[first:end], 0)
    since, until = (int(evidence.steps.ids[each]) for each in (columns[0], columns[-1]))
    slower = float(np.median(inside) / np.median(outside))
    if _busy_host(evidence, columns, np.setdiff1d(usable, columns), float(np.median(lost[columns]))):
        return None
    told = {
        "ratio": slower,
        "since_step": since,
        "transfer_ms": float(np.median(inside * usual[columns])),
        "transfer_before_ms": float(np.median(usual_ms)),
    }
    what = f"{slower:.2g} times as long " + (f"since step {since}" if end == len(usable) else f"from step {since} to step {until}")
    cause = _larger_part(transfers, chosen, np.isin(step, columns))
    return _Slow(name, evidence.members[name], cause, columns, lost, 0.85, what, told)


def _change(ratio: Reals) -> tuple[int, int] | None:
    """The stretch [first, end) in which the ratio lies clearly higher than before and after; None where there is none that lasts."""
    low, high = (float(each) for each in np.quantile(ratio, (0.1, 0.9)))
    lowest, highest = (float(each) for each in np.sort(ratio)[[_FEWEST - 1, -_FEWEST]])
    return _between(ratio, low, high) or _between(ratio, lowest, highest, _CLEARLY)


def _between(ratio: Reals, low: float, high: float, least: float = 1.0) -> tuple[int, int] | None:
    """The stretch that lies above the middle of two levels, if it does so clearly and is `least` times as high as the rest."""
    first, end = stretch(ratio - (low + high) / 2 + (high - low) / 4, (high - low) / 2)
    inside, outside = ratio[first:end], np.delete(ratio, np.arange(first, end))
    lasts = end == len(ratio) or len(inside) >= max(_LASTING * len(ratio), _FEWEST)
    if len(inside) < _FEWEST or len(outside) < _FEWEST or not lasts or not _steps_up(inside, outside):
        return None
    return (first, end) if float(np.median(inside)) >= least * float(np.median(outside)) else None


def _by_steps(evidence: Evidence, transfers: links.Transfers, slow: list[str]) -> list[_Slow]:
    """Where collectives are recorded in a few steps only: the steps in which all ranks wait longer for what is sent.

    What a step sends then takes about the hidden part, known from the recorded steps, and the exposed one, known of each. The groups
    are those of the backward and `slow`, which the recorded steps show.
    """
    usable = np.flatnonzero(evidence.steps.usable & np.isfinite(evidence.exposed_transfer))
    recorded = np.intersect1d(evidence.pairs.pair_step[transfers.backward], usable)
    if len(usable) < 2 * _FEWEST or not 0 < len(recorded) < len(usable) / 2:
        return []
    exposed = evidence.exposed_transfer
    of_ranks = transfers.ms * evidence.pairs.size / len(evidence.ranks)
    moved = evidence.step_sum(of_ranks[transfers.backward], evidence.pairs.pair_step[transfers.backward])
    usual = float(moved[recorded].min())
    ratio = np.maximum(1 + (exposed[usable] - float(np.sort(exposed[usable])[_FEWEST - 1])) / usual, _LEAST)
    found = _change(ratio)
    if found is None:
        return []
    columns, before = usable[found[0] : found[1]], np.delete(usable, np.arange(*found))
    lost = np.zeros(len(exposed))
    lost[columns] = np.maximum(exposed[columns] - float(np.median(exposed[before])), 0)
    if _busy_host(evidence, columns, before, float(np.median(lost[columns]))):
        return []
    slower = float(np.median(ratio[found[0] : found[1]]) / np.median(np.delete(ratio, np.arange(*found))))
    since = int(evidence.steps.ids[columns[0]])
    told = {"ratio": slower, "since_step": since, "exposed_ms": float(np.median(exposed[columns]))}
    what = f"about {slower:.2g} times as long since step {since}"
    names = sorted({transfers.group[1][code] for code in transfers.group[0][transfers.backward].tolist()} | set(slow))
    return [_Slow(name, evidence.members[name], "bandwidth", columns, lost / len(names), 0.7, what, told) for name in names]


def _steps_up(inside: Reals, outside: Reals) -> bool:
    """Whether nearly all steps inside are well above nearly all outside, by more than either side scatters."""
    clear = float((inside > _RATIO * np.median(outside)).mean()) >= _INSIDE
    apart = float(np.quantile(inside, 1 - _INSIDE)) > float(np.quantile(outside, _INSIDE))
    if min(len(inside), len(outside)) >= _MANY and float(np.quantile(inside, 0.1)) > _APART * float(np.quantile(outside, 0.9)):
        return True
    scatter = max(float(np.subtract(*np.quantile(np.log(np.maximum(each, 1e-9)), (0.75, 0.25)))) for each in (inside, outside))
    return clear and apart and float(np.log(np.median(inside) / np.median(outside))) > _SCATTERS * scatter


def _busy_host(evidence: Evidence, inside: Ints, outside: Ints, extra_ms: float) -> bool:
    """Whether the ranks' own work, or their wait for a CPU, grew along with the transfers: then the machine was busy, not the link."""
    for name in ("thread_delay_ms", "compute_ms"):
        values = evidence.steps.column(name)
        ours, before = values[:, inside], values[:, outside]
        known = np.isfinite(ours).any() and np.isfinite(before).any()
        if known and float(np.nanmedian(ours) - np.nanmedian(before)) > _OF_EXTRA * extra_ms:
            return True
    return False


def _against_sisters(evidence: Evidence, transfers: links.Transfers, name: str, chosen: Ints) -> _Slow | None:
    """Groups of the same size that move the same bytes by the same operations at the same time."""
    sisters = [other for other in transfers.sisters.get(name, ()) if other != name]
    if len(sisters) < _FEWEST:
        return None
    rates, own = [transfers.rate[other] for other in sisters], transfers.rate[name]
    usual = float(np.median(rates))
    if own < _RATIO * usual or own < _RATIO * float(np.quantile(rates, 0.75)):
        return None
    lost = evidence.step_sum(np.maximum(transfers.ms[chosen] - usual * transfers.wire_bytes[chosen], 0), evidence.pairs.pair_step[chosen])
    told = {"ratio": own / usual, "sisters": len(sisters), "bus_gb_s": 1e-6 / own, "sisters_bus_gb_s": 1e-6 / usual}
    what = f"{own / usual:.2g} times as long as {len(sisters)} groups like it"
    return _Slow(name, evidence.members[name], "bandwidth", np.flatnonzero(lost > 0), lost, 0.85, what, told)


def _against_any_wire(evidence: Evidence, transfers: links.Transfers, name: str, chosen: Ints) -> _Slow | None:
    """Rates that no healthy network has; see slow_network.py."""
    slow = slow_network.slow(evidence, transfers, chosen)
    if not len(slow):
        return None
    reached = float(transfers.wire_bytes[slow].sum() / transfers.ms[slow].sum() / 1e6)
    expected = transfers.wire_bytes[slow] / (slow_network.FLOOR_GB_S * 1e6)
    lost = evidence.step_sum(np.maximum(transfers.ms[slow] - expected, 0), evidence.pairs.pair_step[slow])
    ranks = slow_network.side(evidence, slow, evidence.members[name])
    told = {"bus_gb_s": reached, "floor_gb_s": slow_network.FLOOR_GB_S}
    what = f"so long that the network carries {reached * 1e3:.2g} MB/s"
    if len(ranks) < len(evidence.members[name]):
        what += f", and rank {ranks[0]} leaves first each time: what it sends is stuck on its side"
    return _Slow(name, ranks, "bandwidth", np.flatnonzero(lost > 0), lost, 0.7, what, told)


def _usual(transfers: links.Transfers, chosen: Ints, quantile: float) -> Reals:
    """For each pair the usual time of its operation and size in this group."""
    codes = transfers.operation[0][chosen]
    usual = np.zeros(len(chosen))
    keys = np.unique(np.stack((codes.astype(np.float64), transfers.wire_bytes[chosen])), axis=1, return_inverse=True)[1].ravel()
    for key in range(int(keys.max()) + 1):
        usual[keys == key] = np.quantile(transfers.ms[chosen][keys == key], quantile)
    return usual


def _larger_part(transfers: links.Transfers, chosen: Ints, inside: Bools) -> str:
    """Latency where every message takes about the same time more, whatever its size; else bandwidth."""
    usual = np.bincount(transfers.operation[0][chosen]).argmax()
    chosen, inside = chosen[transfers.operation[0][chosen] == usual], inside[transfers.operation[0][chosen] == usual]
    moved = transfers.wire_bytes[chosen]
    if moved.max() < _SIZES * moved.min() or inside.all() or not inside.any():
        return "bandwidth"
    slow = links.fit(transfers.wire_bytes[chosen][inside], transfers.ms[chosen][inside])
    before = links.fit(transfers.wire_bytes[chosen][~inside], transfers.ms[chosen][~inside])
    middle = float(np.median(transfers.wire_bytes[chosen]))
    return "latency" if slow[0] - before[0] > (slow[1] - before[1]) * middle else "bandwidth"


def _lost(evidence: Evidence, slow: list[_Slow]) -> Reals:
    """Of each step, what the rank lost that lost most: its groups one after another."""
    lost = np.zeros(evidence.steps.shape)
    for each in slow:
        lost[position(evidence.ranks, np.array(each.ranks))] += each.lost
    return np.asarray(lost.max(0))


def _brief(evidence: Evidence, columns: Ints) -> bool:
    """Whether it is over, or brief in a finished run, on one host's CPUs: another program on the cores does the same, and is likelier."""
    here = not evidence.on_device and links.hosts(evidence, tuple(evidence.ranks.tolist())) <= 1
    usable = np.flatnonzero(evidence.steps.usable)
    short = not evidence.live and len(columns) < _LASTING * len(usable)
    return here and (short or bool((usable > columns.max(initial=-1)).sum() >= _FEWEST))


def _finding(evidence: Evidence, transfers: links.Transfers, slow: list[_Slow]) -> Finding | None:
    main = max(slow, key=lambda each: float(each.lost.sum()))
    columns = np.unique(np.concatenate([each.columns for each in slow]))
    typical = float(np.nanmedian(evidence.steps.duration[:, columns])) if len(columns) else 0.0
    lost, exposed = _lost(evidence, slow)[columns], evidence.exposed_transfer[columns]
    cost = float(np.where(np.isfinite(exposed), np.minimum(lost, exposed), lost).mean()) if len(columns) else 0.0
    if cost < _SHARE * typical:
        return None
    groups = [each.group for each in slow]
    operations = sorted(
        {transfers.operation[1][code] for each in groups for code in np.unique(transfers.operation[0][transfers.in_group(each)])}
    )
    ranks = tuple(sorted({rank for each in slow for rank in each.ranks}))
    one, several = ("reaches", "reach") if main.cause == "transport" else ("takes", "take")
    where = f"process group {groups[0]}" if len(groups) == 1 else f"{len(groups)} process groups"
    return Finding(
        kind="slow_link",
        cause=main.cause,
        ranks=ranks,
        severity=Severity.INFO if _brief(evidence, columns) else severity(cost, typical),
        confidence=main.confidence,
        cost_ms=cost,
        steps=evidence.step_numbers(columns),
        evidence={"process_group": main.group, "process_groups": groups, "operations": operations, "step_ms": typical, **main.evidence},
        advice=ADVICE[main.cause],
        sentence=f"{name_ranks(ranks, len(evidence.expected_ranks))}: {', '.join(operations)} of {where} "
        f"{one if len(operations) == 1 else several} {main.what}. No rank is late; at its expected time a step takes "
        f"{milliseconds(max(typical - cost, 0))} instead of {milliseconds(typical)}.",
    )
