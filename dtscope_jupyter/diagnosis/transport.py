# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Transport changed: what NCCL's own log says of the way between two ranks, against the way that the hardware has.

Two devices joined by NVLink that talk through host memory (SHM) or a network have peer-to-peer off; a job whose ranks meet over
sockets although InfiniBand was switched off by a variable has lost it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.diagnosis.finding import Finding, Severity, name_ranks

if TYPE_CHECKING:
    from dtscope_jupyter.diagnosis.evidence import Evidence

_DIRECT = ("NVL", "C2C")
"""Types of paths on which NCCL goes directly from device to device, unless told otherwise."""
_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_SOCKET_IFNAME")
_NO_INFINIBAND = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}


@dataclass(frozen=True)
class Change:
    """Ranks that talk by another transport than their link offers, and what shows it."""

    ranks: tuple[int, ...]
    used: tuple[str, ...]
    instead_of: str
    evidence: dict[str, Any]

    @property
    def words(self) -> str:
        """For a sentence: over SHM instead of NVLink P2P (NCCL_P2P_DISABLE=1)."""
        variables = ", ".join(f"{name}={value}" for name, value in self.evidence["variables"].items())
        return f"over {' and '.join(self.used)} instead of {self.instead_of}" + (f" ({variables})" if variables else "")


def changed(evidence: Evidence) -> Change | None:
    """What NCCL's log shows; None where there is no log or nothing is changed."""
    if evidence.topology is None:
        return None
    graph = evidence.topology.graph
    connections = graph.get("connections") or []
    variables = {name: value for name, value in (graph.get("variables") or {}).items() if name in _SWITCHES}
    known = _beside_link(evidence, connections), "direct P2P over NVLink"
    if not known[0]:
        switched = any(variables.get(name, "").lower() == value.lower() for name, value in _NO_INFINIBAND.items())
        known = [one for one in connections if switched and one["transport"].startswith("NET/Socket")], "InfiniBand"
    found, instead_of = known
    if not found:
        return None
    ranks = tuple(sorted({int(one[end]) for one in found for end in ("source", "destination")}))
    used = tuple(sorted({one["transport"].split("/0")[0] for one in found}))
    told = {"transports": list(used), "instead_of": instead_of, "variables": variables, "connections": len(found)}
    return Change(ranks, used, instead_of, told)


def _beside_link(evidence: Evidence, connections: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Connections by another way than P2P of two devices that are joined directly."""
    assert evidence.topology is not None
    node = {data["rank"]: name for name, data in evidence.topology.nodes(data=True) if data.get("rank") is not None}
    paths = evidence.topology.graph.get("paths") or {}
    return [
        one
        for one in connections
        if not one["transport"].startswith("P2P")
        and (paths.get((node.get(one["source"]), node.get(one["destination"]))) or {}).get("type") in _DIRECT
    ]


def explain(evidence: Evidence, slow: list[Finding], advice: str) -> list[Finding]:
    """Slow links with the transport as their cause where the log shows it; the bare fact, as information, where no time tells a cost."""
    change = changed(evidence)
    if change is None:
        return slow
    found = [_told(each, change, advice) if set(each.ranks) & set(change.ranks) else each for each in slow]
    if any(each.cause == "transport" for each in found):
        return found
    sentence = f"{name_ranks(change.ranks, len(evidence.expected_ranks))}: NCCL's log shows that they talk {change.words}."
    return [*found, Finding(
        kind="slow_link", cause="transport", ranks=change.ranks, severity=Severity.INFO, confidence=0.9, cost_ms=0.0, steps=(),
        evidence={"process_groups": [], **change.evidence}, advice=advice, sentence=sentence,
    )]  # fmt: skip


def _told(slow: Finding, change: Change, advice: str) -> Finding:
    sentence = f"{slow.sentence} NCCL's log shows that they talk {change.words}."
    return replace(slow, cause="transport", confidence=0.95, evidence=slow.evidence | change.evidence, advice=advice, sentence=sentence)
