# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A log of NCCL_DEBUG=INFO -> the same graph as `topology`, and what each communicator set up.

Graph attributes: `version`; `network` (Socket, IB, ...); `variables` (NCCL_* that were set); `paths`, a dict
(node, node) -> {hops, bandwidth, type};
`communicators`, a list of dicts: id, size, ranks (global node of each rank), channels, rings (channel -> ranks in
order), trees (channel -> list of (parent, child)), connections (source, destination, channel, transport), tuning
(operation, algorithm, protocol, latency_us, bandwidth), choices (operation, bytes, algorithm, protocol, channels).
`rings`, `trees`, `connections`, `tuning`, `choices` of the largest communicator stand in the graph itself as well.

A log doesn't name the communicator in every line: a line belongs to the one that its process set up last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import networkx as nx

from dtscope_jupyter.ingest.files import Stream, Unreadable
from dtscope_jupyter.ingest.topology import Graph, add_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PIECE = 2**20
_UNLIMITED = "5000.0"
_MOST_LINE = 2**20
_LINE = re.compile(r"(?P<process>[\w.-]+:\d+):\d+ \[-?\d+\] NCCL INFO (?P<text>.*)$")
_KINDS = {"GPU": "gpu", "NVS": "switch", "CPU": "cpu", "NIC": "nic", "NET": "net", "PCI": "pci"}
_LINKS = {"NVL": "nvlink", "PCI": "pci", "NET": "network", "C2C": "c2c", "SYS": "cpu", "QPI": "cpu"}
_MERGED = ("rings", "trees", "connections", "tuning", "choices")
_NODE = r"(?:GPU|NVS|CPU|NIC|NET|PCI)/[0-9A-Fa-f-]+"
_INIT = re.compile(r"\w+ comm (\w+) rank (\d+) nranks (\d+) cudaDev (\d+).*? busId (\w+)(?: commId (\w+))?.*Init START")
_SYSTEM = re.compile(
    rf"(?P<indent>\s*)(?P<link>\+ (?P<kind>\w+)\[(?P<bandwidth>[\d.]+)\] - )?(?P<node>{_NODE})(?: \((?P<rank>\d+)?[^)]*\))?\s*$"
)
_PATHS = re.compile(rf"({_NODE}) :((?:{_NODE} \([^)]*\) ?)+)\s*$")
_PATH = re.compile(rf"({_NODE}) \((\d+)/([\d.]+)/(\w+)\)")
_RING = re.compile(r"Channel (\d+)/(\d+) :((?: +\d+)+)\s*$")
_TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(-?\d+)->(-?\d+)")
_CONNECTION = re.compile(r"Channel (\d+)/\d+ : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(?:send|receive)\] )?via (\S+)")
_VARIABLE = re.compile(r"(NCCL_\w+) set by environment to (\S+)")
_CHANNELS = re.compile(r"(\d+) coll channels")
_CHOICE = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_ROW = re.compile(r"\s*(Algorithm|Protocol|Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s+\|(.*)\|\s*$")
_OPERATIONS = {
    "Broadcast": "broadcast", "Reduce": "reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "AllReduce": "all_reduce",
}  # fmt: skip


def read(path: Path) -> Graph:
    """The graph of one log; Unreadable where no line tells anything."""
    log = _Log()
    with Stream(path) as stream:
        for line in _lines(stream):
            if match := _LINE.search(line):
                log.take(match["process"], match["text"].rstrip())
    if not log.graph and not log.communicators:
        raise Unreadable("no line of NCCL about devices or communicators: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING")
    return log.finish()


def _lines(stream: Stream) -> Iterator[str]:
    left = b""
    while piece := stream.read(_PIECE):
        *whole, left = (left + piece).split(b"\n")
        left = left[-_MOST_LINE:]
        yield from (line.decode("utf-8", "replace") for line in whole)
    yield left.decode("utf-8", "replace")


class _Log:
    """Gathers line by line."""

    def __init__(self) -> None:
        self.graph: Graph = nx.MultiGraph()
        self.communicators: dict[str, dict[str, Any]] = {}
        self._current: dict[str, dict[str, Any]] = {}
        self._above: dict[str, list[tuple[int, str]]] = {}
        self._heads: dict[str, tuple[list[str], list[str]]] = {}
        self._takers: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], None]], ...] = (
            (_INIT, self._init), (_PATHS, self._paths), (_SYSTEM, self._system), (_RING, self._ring), (_CONNECTION, self._connection),
            (_CHOICE, self._choice), (_ROW, self._row), (_CHANNELS, self._channels),
        )  # fmt: skip

    def take(self, process: str, text: str) -> None:
        if text.startswith("Trees "):
            self._trees(process, text)
        elif match := re.match(r"NCCL version (\S+)", text):
            self.graph.graph["version"] = match[1]
        elif match := re.match(r"Using network (\S+)", text):
            self.graph.graph["network"] = match[1]
        elif match := _VARIABLE.search(text):
            self.graph.graph.setdefault("variables", {})[match[1]] = match[2].rstrip(".")
        for pattern, taker in self._takers:
            if match := pattern.match(text):
                taker(process, match)
                return

    def finish(self) -> Graph:
        """The graph, with what the communicators set up."""
        known = sorted(self.communicators.values(), key=lambda c: -c["size"])
        for communicator in known:
            communicator["tuning"] = list(communicator["tuning"].values())
        self.graph.graph["communicators"] = known
        if known:
            self.graph.graph |= {name: known[0][name] for name in _MERGED}
            for rank, node in known[0]["ranks"].items():
                if node in self.graph:
                    self.graph.nodes[node]["rank"] = rank
        return self.graph

    def _init(self, process: str, match: re.Match[str]) -> None:
        pointer, rank, size, device, bus, ident = match.groups()
        fresh: dict[str, Any] = {"id": ident or pointer, "size": int(size), "ranks": {}, "channels": None, "rings": {}, "trees": {}}
        fresh |= {"connections": [], "tuning": {}, "choices": []}
        communicator = self.communicators.setdefault(ident or pointer, fresh)
        node = f"GPU/0-{int(bus, 16):x}"
        communicator["ranks"][int(rank)] = node
        self._current[process] = communicator
        known = self.graph.nodes.get(node, {})
        self.graph.add_node(node, **({"kind": "gpu", "label": f"GPU {device}"} | known | {"device": int(device)}))

    def _system(self, process: str, match: re.Match[str]) -> None:
        """A line of the tree that NCCL prints: what it hangs on is the last line above with less indent."""
        node, depth = match["node"], len(match["indent"]) if match["link"] else -1
        above = [(d, n) for d, n in self._above.get(process, []) if d < depth]
        self._above[process] = [*above, (depth, node)]
        self._node(node)
        if match["link"] and above:
            bandwidth = float(match["bandwidth"]) if match["bandwidth"] != _UNLIMITED else None
            add_link(self.graph, node, above[-1][1], _LINKS.get(match["kind"], match["kind"].lower()), bandwidth)

    def _node(self, node: str) -> None:
        if node not in self.graph:
            kind = _KINDS[node[:3]]
            self.graph.add_node(node, kind=kind, label="NVSwitch" if kind == "switch" else node)

    def _paths(self, _: str, match: re.Match[str]) -> None:
        paths = self.graph.graph.setdefault("paths", {})
        for node, hops, bandwidth, kind in _PATH.findall(match[2]):
            paths[match[1], node] = {"hops": int(hops), "bandwidth": float(bandwidth), "type": kind}

    def _ring(self, process: str, match: re.Match[str]) -> None:
        if communicator := self._current.get(process):
            communicator["rings"][int(match[1])] = [int(rank) for rank in match[3].split()]

    def _trees(self, process: str, text: str) -> None:
        if communicator := self._current.get(process):
            for channel, *children, rank, _ in _TREE.findall(text):
                edges = [(int(rank), int(child)) for child in children if int(child) >= 0]
                communicator["trees"].setdefault(int(channel), []).extend(edges)

    def _connection(self, process: str, match: re.Match[str]) -> None:
        if communicator := self._current.get(process):
            channel, source, destination, transport = match.groups()
            row = {"source": int(source), "destination": int(destination), "channel": int(channel), "transport": transport}
            if row not in communicator["connections"][-256:]:
                communicator["connections"].append(row)

    def _channels(self, process: str, match: re.Match[str]) -> None:
        if communicator := self._current.get(process):
            communicator["channels"] = int(match[1])

    def _choice(self, process: str, match: re.Match[str]) -> None:
        if communicator := self._current.get(process):
            name, size, algorithm, protocol, low, high = match.groups()
            row = {"operation": _OPERATIONS.get(name, name.lower()), "bytes": int(size), "algorithm": algorithm.lower()}
            row |= {"protocol": protocol.lower(), "channels": int(high) - int(low) + 1}
            if row not in communicator["choices"]:
                communicator["choices"].append(row)

    def _row(self, process: str, match: re.Match[str]) -> None:
        """The tuning table: a row of algorithms, one of protocols, then latency/bandwidth of each operation."""
        name, cells = match[1], [cell.strip() for cell in match[2].split("|")]
        algorithms, protocols = self._heads.get(process, ([], []))
        if name == "Algorithm":
            self._heads[process] = (cells, [])
        elif name == "Protocol":
            self._heads[process] = (algorithms, cells)
        elif (communicator := self._current.get(process)) and algorithms and len(protocols) == len(cells):
            each = len(cells) // len(algorithms)
            for place, cell in enumerate(cells):
                _tune(communicator["tuning"], _OPERATIONS[name], algorithms[place // each], protocols[place], cell)


def _tune(tuning: dict[tuple[str, ...], dict[str, Any]], operation: str, algorithm: str, protocol: str, cell: str) -> None:
    latency, _, bandwidth = cell.partition("/")
    try:
        numbers = {"latency_us": float(latency), "bandwidth": float(bandwidth)}
    except ValueError:
        return
    if numbers["bandwidth"] > 0:
        key = {"operation": operation, "algorithm": algorithm.lower(), "protocol": protocol.lower()}
        tuning[tuple(key.values())] = key | numbers
