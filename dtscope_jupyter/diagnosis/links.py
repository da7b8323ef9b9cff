# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How long collectives should take: alpha + beta * bytes on the wire, and what known hardware carries."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.analysis import columns
from dtscope_jupyter.analysis.bandwidth import factor

if TYPE_CHECKING:
    import networkx as nx

    from dtscope_jupyter.analysis.columns import Bools, Ints, Reals
    from dtscope_jupyter.diagnosis.evidence import Evidence

LARGE_BYTES = 4 * 2**20
"""Messages at which the bandwidth, and not the start-up, decides."""


@dataclass(frozen=True)
class Known:
    """What a device's own link carries, GB/s one way, and who says so."""

    device: str
    link: str
    gb_s: float
    source: str


@dataclass(frozen=True)
class Transfers:
    """Every pair's transfer, with what it moved: arrays a pair."""

    evidence: Evidence

    @cached_property
    def group(self) -> tuple[Ints, list[str]]:
        """Process group."""
        return self.evidence.pairs.text("process_group")

    @cached_property
    def operation(self) -> tuple[Ints, list[str]]:
        """Operation."""
        return self.evidence.pairs.text("operation")

    @cached_property
    def wire_bytes(self) -> Reals:
        """Bytes * bus factor: what the busiest link carries; NaN where the size is unknown."""
        pairs = self.evidence.pairs
        code, names = self.operation
        ranks = np.where(np.isfinite(self._told_size), self._told_size, pairs.size)
        factors = np.ones(pairs.count)
        for number, name in enumerate(names):
            factors[code == number] = factor(name, ranks[code == number])
        return pairs.bytes * factors

    @cached_property
    def whole(self) -> Bools:
        """Pairs that every member of the group was seen in: without one of them a wait for it looks like a transfer."""
        return ~(self._told_size > self.evidence.pairs.size)

    @cached_property
    def _told_size(self) -> Reals:
        pairs = self.evidence.pairs
        code, names = self.group
        known = np.array([len(self.evidence.members.get(name, ())) for name in names] + [0])[code]
        return np.fmax(columns.reals(pairs.table, "group_size")[pairs.first], np.where(known > 0, known, np.nan))

    @cached_property
    def ms(self) -> Reals:
        """Shortest duration over ranks."""
        return self.evidence.pairs.transfer_ms

    def in_group(self, name: str) -> Ints:
        """Pairs of a process group that have a size and lie in a step."""
        return self._by_group.get(name, np.zeros(0, np.int64))

    @cached_property
    def rate(self) -> dict[str, float]:
        """Median ms a byte on the wire, of each process group."""
        return {name: float(np.median(self.ms[chosen] / self.wire_bytes[chosen])) for name, chosen in self._by_group.items()}

    @cached_property
    def sisters(self) -> dict[str, list[str]]:
        """Of each process group, those of the same size that move the same bytes by the same operations, itself included."""
        alike: dict[object, list[str]] = {}
        for name, chosen in self._by_group.items():
            moved = frozenset(zip(self.operation[0][chosen].tolist(), self.wire_bytes[chosen].tolist(), strict=True))
            alike.setdefault((len(self.evidence.members[name]), moved), []).append(name)
        return {name: names for names in alike.values() for name in names}

    @cached_property
    def backward(self) -> Ints:
        """Pairs of the backward in a step, of known size."""
        chosen = columns.is_any(self.evidence.pairs.table, "phase", ("backward",))[self.evidence.pairs.first]
        return np.flatnonzero(chosen & np.isfinite(self.wire_bytes) & self.whole & (self.evidence.pairs.pair_step >= 0))

    @cached_property
    def _by_group(self) -> dict[str, Ints]:
        code, names = self.group
        chosen = np.flatnonzero(
            np.isfinite(self.wire_bytes) & (self.wire_bytes > 0) & self.whole & (self.evidence.pairs.pair_step >= 0) & (code >= 0)
        )
        chosen = chosen[np.argsort(code[chosen], kind="stable")]
        first = np.flatnonzero(np.diff(code[chosen], prepend=-1))
        return {names[code[part[0]]]: part for part in np.split(chosen, first[1:]) if len(part)}

    def bus_gb_s(self, chosen: Ints) -> float:
        """Bus bandwidth of the median large message, as a group's first one also sets it up; NaN where there is none."""
        chosen = chosen[(self.evidence.pairs.bytes[chosen] >= LARGE_BYTES) & (self.ms[chosen] > 0)]
        return float(np.median(self.wire_bytes[chosen] / self.ms[chosen])) / 1e6 if len(chosen) else float("nan")


def fit(wire_bytes: Reals, ms: Reals) -> tuple[float, float]:
    """Alpha (ms) and beta (ms a byte), neither negative, through the median time of each size."""
    sizes, place = np.unique(wire_bytes, return_inverse=True)
    middle = np.array([np.median(ms[place == number]) for number in range(len(sizes))])
    if len(sizes) == 1:
        return 0.0, float(middle[0] / sizes[0]) if sizes[0] > 0 else 0.0
    beta, alpha = np.polyfit(sizes, middle, 1)
    if beta < 0:
        return float(np.median(ms)), 0.0
    if alpha < 0:
        return 0.0, float((sizes * middle).sum() / (sizes**2).sum())
    return float(alpha), float(beta)


@cache
def _hardware() -> list[dict[str, Any]]:
    text = resources.files("dtscope_jupyter.diagnosis").joinpath("hardware.json").read_text()
    links: list[dict[str, Any]] = json.loads(text)["links"]
    return links


def known(evidence: Evidence) -> Known | None:
    """The link between the run's devices: as the host's topology tells, else where all are of one known model."""
    told = _in_topology(evidence.topology) if evidence.topology is not None else None
    return told or _by_model(evidence)


def _in_topology(topology: nx.MultiGraph[str]) -> Known | None:
    """NVLink of the device that has least of it, where all devices have some; `bandwidth` is GB/s one way."""
    devices = [node for node, data in topology.nodes(data=True) if data.get("kind") == "gpu"]
    if len(devices) < 2:  # noqa: PLR2004 - a link has two ends
        return None
    rates = [
        sum(data.get("bandwidth") or 0.0 for *_, data in topology.edges(node, data=True) if data.get("kind") == "nvlink")
        for node in devices
    ]
    return Known(f"{len(devices)} devices", "NVLink", min(rates), "NCCL's topology file") if min(rates) > 0 else None


def _by_model(evidence: Evidence) -> Known | None:
    names = {name for name in evidence.tables["devices"]["name"].unique().to_pylist() if name}
    if len(names) != 1:
        return None
    name = names.pop()
    for entry in _hardware():
        if re.search(entry["device"], name, re.IGNORECASE):
            return Known(name, entry["link"], float(entry["link_gb_s"]), entry["source"])
    return None


def hosts(evidence: Evidence, ranks: tuple[int, ...]) -> int:
    """Hosts that the ranks are on, as `clocks` tells; 0 where it doesn't."""
    table = evidence.tables["clocks"]
    code, names = columns.codes(table, "boot_id" if table["boot_id"].null_count == 0 else "host")
    present = np.unique(code[np.isin(columns.ints(table, "rank"), ranks) & (code >= 0)])
    return sum(bool(names[one]) for one in present.tolist())
