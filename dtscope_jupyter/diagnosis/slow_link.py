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

from dtscope_jupyter.diagnosis import links
from dtscope_jupyter.diagnosis.finding import Finding, milliseconds, name_ranks, severity
from dtscope_jupyter.diagnosis.late import stretch

if TYPE_CHECKING:
    from dtscope_jupyter.analysis.columns import Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

_RATIO = 1.5
"""A group is slow where it takes half as long again as it should."""
_OF_KNOWN, _EXPECTED_OF_KNOWN = 0.2, 0.5
"""NCCL reaches half of a link's rate and more on large messages (H200, 4 ranks, beside compute: 0.58); a fifth is another transport."""
_FEWEST, _SHARE, _ONE_HOST = 2, 0.02, 8
_INSIDE = 0.75
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
    """Slow groups; of several ways to see that one is slow, the first that does."""
    if not evidence.pairs.count or not len(evidence.steps.ids):
        return []
    transfers = links.Transfers(evidence)
    slow = [found for name in transfers.group[1] if (found := _slow(evidence, transfers, name))]
    return [finding for each in slow if (finding := _finding(evidence, transfers, each))]


def _slow(evidence: Evidence, transfers: links.Transfers, name: str) -> _Slow | None:
    chosen = transfers.in_group(name)
    if len(chosen) < _FEWEST:
        return None
    return (
        _against_itself(evidence, transfers, name, chosen)
        or _against_hardware(evidence, transfers, name, chosen)
        or _against_sisters(evidence, transfers, name, chosen)
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
    return _Slow(name, ranks, "transport", np.flatnonzero(lost > 0), lost, 0.9, what, told)


def _against_itself(evidence: Evidence, transfers: links.Transfers, name: str, chosen: Ints) -> _Slow | None:
    """The steps in which the group's transfers take longer than in the others, size by size."""
    expected = _usual(transfers, chosen, 0.25)
    step = evidence.pairs.pair_step[chosen]
    taken, usual = evidence.step_sum(transfers.ms[chosen], step), evidence.step_sum(expected, step)
    usable = np.flatnonzero((usual > 0) & evidence.steps.usable)
    if len(usable) < 2 * _FEWEST:
        return None
    lost = (taken - usual)[usable]
    spread = float(np.median(np.abs(np.diff(lost)))) * 1.5
    threshold = max(_SHARE * evidence.steps.typical_ms, (_RATIO - 1) * float(np.median(usual[usable])), 3 * spread)
    first, end = stretch(lost, threshold)
    inside, outside = np.arange(len(usable))[first:end], np.delete(np.arange(len(usable)), np.arange(first, end))
    if len(inside) < _FEWEST or len(outside) < _FEWEST or (lost[inside] > threshold / 2).mean() < _INSIDE:
        return None
    ratio = float(np.median(taken[usable[inside]] / usual[usable[inside]]) / np.median(taken[usable[outside]] / usual[usable[outside]]))
    if ratio < _RATIO or float(np.median(lost[inside])) < threshold:
        return None
    whole = np.zeros(len(usual))
    whole[usable[inside]] = np.maximum(lost[inside] - np.median(lost[outside]), 0)
    ids = evidence.steps.ids[usable[inside]]
    until = "" if end == len(usable) else f" to step {ids[-1]}"
    told = {"ratio": ratio, "since_step": int(ids[0]), "transfer_ms": float(np.median(taken[usable[inside]])),
            "transfer_before_ms": float(np.median(taken[usable[outside]]))}
    what = f"{ratio:.2g} times as long from step {ids[0]}{until}" if until else f"{ratio:.2g} times as long since step {ids[0]}"
    cause = _larger_part(transfers, chosen, np.isin(step, usable[inside]))
    return _Slow(name, evidence.members[name], cause, usable[inside], whole, 0.85, what, told)


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


def _usual(transfers: links.Transfers, chosen: Ints, quantile: float) -> Reals:
    """For each pair the usual time of its operation and size in this group."""
    codes = transfers.operation[0][chosen]
    usual = np.zeros(len(chosen))
    keys = np.unique(np.stack((codes.astype(np.float64), transfers.wire_bytes[chosen])), axis=1, return_inverse=True)[1].ravel()
    for key in range(int(keys.max()) + 1):
        usual[keys == key] = np.quantile(transfers.ms[chosen][keys == key], quantile)
    return usual


def _larger_part(transfers: links.Transfers, chosen: Ints, inside: Reals) -> str:
    """latency where every message takes about the same time more, whatever its size; else bandwidth."""
    if len(np.unique(transfers.wire_bytes[chosen])) < 2 or inside.all():  # noqa: PLR2004 - one size shows no slope
        return "bandwidth"
    slow = links.fit(transfers.wire_bytes[chosen][inside], transfers.ms[chosen][inside])
    usual = links.fit(transfers.wire_bytes[chosen][~inside], transfers.ms[chosen][~inside])
    middle = float(np.median(transfers.wire_bytes[chosen]))
    return "latency" if slow[0] - usual[0] > (slow[1] - usual[1]) * middle else "bandwidth"


def _finding(evidence: Evidence, transfers: links.Transfers, slow: _Slow) -> Finding | None:
    typical = evidence.steps.typical_ms
    exposed = evidence.exposed_transfer[slow.columns]
    won = np.where(np.isfinite(exposed), np.minimum(slow.lost[slow.columns], exposed), slow.lost[slow.columns])
    cost = float(won.mean()) if len(won) else 0.0
    if cost < _SHARE * typical:
        return None
    names = {transfers.operation[1][code] for code in transfers.operation[0][transfers.in_group(slow.group)]}
    steps = evidence.step_numbers(slow.columns)
    return Finding(
        kind="slow_link",
        cause=slow.cause,
        ranks=slow.ranks,
        severity=severity(cost, typical),
        confidence=slow.confidence,
        cost_ms=cost,
        steps=steps,
        evidence={"process_group": slow.group, "operations": sorted(names), "step_ms": typical, **slow.evidence},
        advice=ADVICE[slow.cause],
        sentence=f"{name_ranks(slow.ranks, len(evidence.expected_ranks))}: {', '.join(sorted(names))} of process group {slow.group} "
        f"{'reaches' if slow.cause == 'transport' else 'takes'} {slow.what}. No rank is late; at its expected time a step takes "
        f"{milliseconds(max(typical - cost, 0))} instead of {milliseconds(typical)}.",
    )
