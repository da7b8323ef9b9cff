# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A log of NCCL_DEBUG=INFO -> the same graph as `topology`, and what each communicator set up.

Graph attributes: `version`; `network` (Socket, IB, ...); `variables` (NCCL_* that were set); `paths`, a dict
(node, node) -> {hops, bandwidth, type};
`communicators`, a list of dicts: id, size, ranks (global node of each rank), channels, nvls_channels, rings (channel -> ranks in
order), trees (channel -> list of (parent, child)), connections (source, destination, channel, transport), tuning
(operation, algorithm, protocol, latency_us, bandwidth), choices (operation, bytes, algorithm, protocol, channels; None where the
version doesn't tell).
`rings`, `trees`, `connections`, `tuning`, `choices` of the largest communicator stand in the graph itself as well.

A log doesn't name the communicator in every line: a line belongs to the one that its process set up last. Before NCCL 2.16 a
process names it only when all is set up (Init COMPLETE) and its ranks share no name: there the n-th of a size is one in all processes.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import networkx as nx

from dtscope_jupyter.ingest.files import Stream, Unreadable
from dtscope_jupyter.ingest.topology import Graph, add_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PIECE = 2**20
_COLORS = re.compile(r"\x1b\[[0-9;]{0,20}m")
_UNLIMITED = "5000.0"
_MOST_LINE = 2**20
_MOST_TEXT = 2**14
"""NCCL's longest lines, of trees over many channels, have some thousand characters."""
_RECENT = 256
_LINE = re.compile(r"(?<![\w.-])(?P<process>[\w.-]+:\d+):\d+ \[-?\d+\] NCCL INFO (?P<text>.*)$")
"""From where a word begins, else a long one would be gone through from each of its letters."""
_KINDS = {"GPU": "gpu", "NVS": "switch", "CPU": "cpu", "NIC": "nic", "NET": "net", "PCI": "pci"}
_LINKS = {"NVL": "nvlink", "PCI": "pci", "NET": "network", "C2C": "c2c", "SYS": "cpu", "QPI": "cpu"}
_MERGED = ("rings", "trees", "connections", "tuning", "choices")
_NODE = r"(?:GPU|NVS|CPU|NIC|NET|PCI)/[0-9A-Fa-f-]{1,40}"
_N = r"(\d{1,9})"
_INIT = re.compile(
    rf"(?:\w+ )?comm (\w+) rank {_N} nranks {_N} cudaDev {_N}"
    r"(?:.*? busId ([0-9A-Fa-f]{1,16}))?(?:.*? commId (\w+))?.*Init (START|COMPLETE)"
)
_SYSTEM = re.compile(
    rf"(?P<indent>\s*)(?P<link>\+ (?P<kind>\w+)\[(?P<bandwidth>\d{{1,9}}(?:\.\d{{1,9}})?)\] - )?(?P<node>{_NODE})(?: \([^)]*\))?\s*$"
)
_PATHS = re.compile(rf"({_NODE}) :((?:{_NODE} \([^)]*\) ?)+)\s*$")
_PATH = re.compile(rf"({_NODE}) \({_N}/(\d{{1,9}}(?:\.\d{{1,9}})?)/(\w+)\)")
_RING = re.compile(rf"(?:Channel|Ring) {_N}(?:/\d+)? :((?: +\d{{1,9}})+)\s*$")
_TREE = re.compile(r"\[(\d{1,9})\] (-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->(-?\d{1,9})->(-?\d{1,9})")
_CONNECTION = re.compile(
    rf"(?:Channel|Ring) {_N}(?:/\d+)? : {_N}\[\w+\] -> {_N}\[\w+\] (?:\[(?:send|receive)\] )?via (.{{1,200}}?)(?: comm \w+ nRanks \d+)?\s*$"
)
_VERSION = re.compile(r"NCCL version (\S+)")
_VARIABLE = re.compile(r"(NCCL_\w+) set by environment to (\S+)")
_NETWORK = re.compile(r"Using network (.{1,80}?)\s*$|Assigned NET plugin (.{1,80}?) to comm")
_CHANNELS = re.compile(rf"{_N} coll channels(?:.*? {_N} nvls channels)?")
_CHOICE = re.compile(rf"(?:(\w+): )?(\d{{1,18}}) Bytes -> Algo (\w+) proto (\w+) (?:channel\{{Lo\.\.Hi\}}=\{{{_N}\.\.{_N}\}}|time [\d.]+)")
_ROW = re.compile(r"\s*(Algorithm|Protocol|Latency/AlgBw|Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s+\|(.*)\|\s*$")
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")
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
            elif match := _VERSION.match(line):
                log.graph.graph["version"] = match[1]
    graph = log.finish()
    if not graph and not log.communicators:
        raise Unreadable("no line of NCCL about devices or communicators: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING")
    return graph


def _lines(stream: Stream) -> Iterator[str]:
    left = b""
    while piece := stream.read(_PIECE):
        *whole, left = (left + piece).split(b"\n")
        left = left[-_MOST_LINE:]
        yield from map(_decoded, whole)
    yield _decoded(left)


def _decoded(line: bytes) -> str:
    text = line[:_MOST_TEXT].decode("utf-8", "replace")
    return _COLORS.sub("", text) if "\x1b" in text else text


class _Log:
    """Gathers line by line."""

    def __init__(self) -> None:
        self.graph: Graph = nx.MultiGraph()
        self.communicators: dict[str, dict[str, Any]] = {}
        self._current: dict[str, dict[str, Any]] = {}
        self._above: dict[str, list[tuple[int, str]]] = {}
        self._heads: dict[str, tuple[list[str], list[str]]] = {}
        self._named: dict[tuple[str, str], dict[str, Any]] = {}
        self._late: set[str] = set()
        self._made: dict[str, Counter[int]] = {}
        self._early: dict[str, dict[str, Any]] = {}
        self._takers: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], None]], ...] = (
            (_INIT, self._init), (_PATHS, self._paths), (_SYSTEM, self._system), (_RING, self._ring), (_CONNECTION, self._connection),
            (_CHOICE, self._choice), (_ROW, self._row), (_CHANNELS, self._channels),
        )  # fmt: skip

    def take(self, process: str, text: str) -> None:
        if text.startswith("Trees "):
            self._trees(process, text)
        elif match := _VERSION.match(text):
            self.graph.graph["version"] = match[1]
        elif match := _NETWORK.match(text):
            self.graph.graph["network"] = match[1] or match[2]
        elif match := _VARIABLE.search(text):
            self.graph.graph.setdefault("variables", {})[match[1]] = match[2].rstrip(".")
        for pattern, taker in self._takers:
            if match := pattern.match(text):
                taker(process, match)
                return

    def finish(self) -> Graph:
        """The graph, with what the communicators set up."""
        for process, early in self._early.items():
            _take_over(self._current.get(process) or self.communicators.setdefault("unknown", _fresh("unknown", 0)), early)
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
        pointer, rank, size, device, bus, ident, when = match.groups()
        communicator = self._named.get((process, pointer))
        if communicator is None or when == "START":
            ident = ident or self._alike(process, int(size))
            communicator = self.communicators.setdefault(ident, _fresh(ident, int(size)))
            if when == "COMPLETE":
                self._late.add(process)
                _take_over(communicator, self._early.pop(process, _fresh("", 0)))
        self._named[process, pointer] = self._current[process] = communicator
        if bus:
            node = f"GPU/0-{int(bus, 16):x}"
            communicator["ranks"][int(rank)] = node
            known = self.graph.nodes.get(node, {})
            self.graph.add_node(node, **({"kind": "gpu", "label": f"GPU {device}"} | known | {"device": int(device)}))

    def _alike(self, process: str, size: int) -> str:
        """A name that the n-th communicator of a size has in all processes."""
        made = self._made.setdefault(process, Counter())
        made[size] += 1
        return f"{size} ranks, no. {made[size]}"

    def _set_up(self, process: str) -> dict[str, Any]:
        """The communicator that the process is setting up; one without a name where it will be named only afterwards."""
        current = None if process in self._late else self._current.get(process)
        return current or self._early.setdefault(process, _fresh("unknown", 0))

    def _system(self, process: str, match: re.Match[str]) -> None:
        """A line of the tree that NCCL prints: what it hangs on is the last line above with less indent."""
        node, depth = _normal(match["node"]), len(match["indent"]) if match["link"] else -1
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
            paths[_normal(match[1]), _normal(node)] = {"hops": int(hops), "bandwidth": float(bandwidth), "type": kind}

    def _ring(self, process: str, match: re.Match[str]) -> None:
        self._set_up(process)["rings"][int(match[1])] = [int(rank) for rank in match[2].split()]

    def _trees(self, process: str, text: str) -> None:
        trees = self._set_up(process)["trees"]
        for channel, *children, rank, _ in _TREE.findall(text):
            edges = [(int(rank), int(child)) for child in children if int(child) >= 0]
            known = trees.setdefault(int(channel), [])
            known.extend(edge for edge in edges if edge not in known[-_RECENT:])

    def _connection(self, process: str, match: re.Match[str]) -> None:
        channel, source, destination, transport = match.groups()
        transport = "SHM" if transport == "direct shared memory" else transport
        row = {"source": int(source), "destination": int(destination), "channel": int(channel), "transport": transport}
        connections = self._set_up(process)["connections"]
        if row not in connections[-_RECENT:]:
            connections.append(row)

    def _channels(self, process: str, match: re.Match[str]) -> None:
        self._set_up(process)["channels"] = int(match[1])
        self._set_up(process)["nvls_channels"] = int(match[2]) if match[2] else None

    def _choice(self, process: str, match: re.Match[str]) -> None:
        name, size, algorithm, protocol, low, high = match.groups()
        row = {"operation": _OPERATIONS.get(name, name.lower()) if name else None, "bytes": int(size)}
        row |= {"algorithm": _named(algorithm, _ALGORITHMS), "protocol": _named(protocol, _PROTOCOLS)}
        row["channels"] = int(high) - int(low) + 1 if low else None
        choices = (self._current.get(process) or self._set_up(process))["choices"]
        if row not in choices[-_RECENT:]:
            choices.append(row)

    def _row(self, process: str, match: re.Match[str]) -> None:
        """The tuning table: a row of algorithms, one of protocols, then latency/bandwidth of each operation."""
        name, cells = match[1], [cell.strip() for cell in match[2].split("|")]
        algorithms, protocols = self._heads.get(process, ([], []))
        if name == "Algorithm":
            self._heads[process] = (cells, [])
        elif name == "Protocol":
            self._heads[process] = (algorithms, cells)
        elif name == "Latency/AlgBw":  # before NCCL 2.20 both stand in one row
            both = [[part.strip() for part in cell.partition("/")[::2]] for cell in cells]
            self._heads[process] = ([pair[0] for pair in both], [pair[1] for pair in both])
        elif algorithms and len(protocols) == len(cells) and len(cells) % len(algorithms) == 0:
            each = len(cells) // len(algorithms)
            for place, cell in enumerate(cells):
                _tune(self._set_up(process)["tuning"], _OPERATIONS[name], algorithms[place // each], protocols[place], cell)


def _fresh(ident: str, size: int) -> dict[str, Any]:
    told: dict[str, Any] = {"id": ident, "size": size, "ranks": {}, "channels": None, "nvls_channels": None, "rings": {}, "trees": {}}
    return told | {"connections": [], "tuning": {}, "choices": []}


def _take_over(communicator: dict[str, Any], early: dict[str, Any]) -> None:
    """Adds what a process told before it named the communicator."""
    for name in ("connections", "choices"):
        communicator[name] += early[name]
    for name in ("rings", "tuning"):
        communicator[name] |= early[name]
    for channel, edges in early["trees"].items():
        known = communicator["trees"].setdefault(channel, [])
        known.extend(edge for edge in edges if edge not in known)
    for name in ("channels", "nvls_channels"):
        communicator[name] = communicator[name] if communicator[name] is not None else early[name]


def _named(text: str, names: tuple[str, ...]) -> str:
    """An algorithm or protocol, which NCCL before 2.24 writes as a number."""
    return names[int(text)] if text.isdecimal() and len(text) == 1 and int(text) < len(names) else text.lower()


def _normal(node: str) -> str:
    """GPU/0-1a000 for GPU/1A000, as NCCL before 2.19 wrote it: there was but one system."""
    kind, _, name = node.partition("/")
    return f"{kind}/{name.lower()}" if "-" in name else f"{kind}/0-{name.lower()}"


def _tune(tuning: dict[tuple[str, ...], dict[str, Any]], operation: str, algorithm: str, protocol: str, cell: str) -> None:
    latency, _, bandwidth = cell.partition("/")
    try:
        numbers = {"latency_us": float(latency), "bandwidth": float(bandwidth)}
    except ValueError:
        return
    if numbers["bandwidth"] > 0:
        key = {"operation": operation, "algorithm": algorithm.lower(), "protocol": protocol.lower()}
        tuning[tuple(key.values())] = key | numbers
