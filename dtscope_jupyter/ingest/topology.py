# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""NCCL's topology XML and graph XML -> a graph of devices, switches, NICs and links.

Nodes carry NCCL's own names (GPU/0-60, NVS/0-0, CPU/0-0, NIC/0-0, NET/0-0, PCI/0-20), so that a log of the same
machine adds to them. Node attributes: kind (gpu, switch, cpu, nic, net, pci), label, and rank, device, bus, sm,
name where known. Edge attributes: kind (nvlink, pci, network, c2c, xgmi), bandwidth (GB/s, one way), count (links).
Graph attributes: see `nccl_log`; `patterns` holds what the graph XML found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree as ET

import networkx as nx

from dtscope_jupyter.ingest.files import Stream, Unreadable

if TYPE_CHECKING:
    from pathlib import Path

Graph: TypeAlias = "nx.MultiGraph[str]"

_MOST_BYTES = 32 * 2**20
_MOST_DEPTH = 64
_NVLINK_GB_S = ((100, 40.1), (90, 20.6), (86, 12.0), (80, 20.0), (70, 20.0), (0, 18.0))
_PCI_GB_S_PER_LANE = ((64, 6.0), (32, 3.0), (16, 1.5), (8, 0.75), (5, 0.375), (0, 0.1875))
_DEFAULT_LANES = 16
_SWITCH_CLASS, _GPU_CLASSES = "0x068000", ("0x030200", "0x030000", "0x0302", "0x0300")
_PATTERNS = {1: "balanced_tree", 2: "split_tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet_direct"}


def read_topology(path: Path) -> Graph:
    """The machine in a file of NCCL_TOPO_DUMP_FILE; Unreadable where it is none."""
    root = _parsed(path, "system")
    graph: Graph = nx.MultiGraph()
    for number, cpu in enumerate(root.iter("cpu")):
        name = f"CPU/0-{_hexadecimal(cpu.get('numaid'), number)}"
        graph.add_node(name, kind="cpu", label=f"CPU {number}", name=cpu.get("vendor"))
        _add_children(graph, cpu, name, 0)
    if not graph:
        raise Unreadable("no device in NCCL's topology")
    return graph


def read_graph(path: Path) -> Graph:
    """The patterns in a file of NCCL_GRAPH_DUMP_FILE, as the graph attribute `patterns`; Unreadable where it is none."""
    root = _parsed(path, "graphs")
    graph: Graph = nx.MultiGraph()
    graph.graph["patterns"] = [_pattern(found) for found in root.iter("graph")]
    if not graph.graph["patterns"]:
        raise Unreadable("no graph in NCCL's graph file")
    return graph


def merged(graphs: list[Graph]) -> Graph:
    """One graph of all; the first to tell an attribute or a link between two nodes stands."""
    whole: Graph = nx.MultiGraph()
    for graph in graphs:
        for node, known in graph.nodes(data=True):
            whole.add_node(node, **(known | {k: v for k, v in whole.nodes.get(node, {}).items() if v is not None}))
        new = [edge for edge in graph.edges(data=True) if not whole.has_edge(edge[0], edge[1])]
        whole.add_edges_from(new)
        whole.graph = graph.graph | whole.graph
    return whole


def add_link(graph: Graph, a: str, b: str, kind: str, bandwidth: float | None, count: int = 1) -> None:
    """Adds a link once, whichever end tells of it."""
    if not any(data["kind"] == kind for data in (graph.get_edge_data(a, b) or {}).values()):
        graph.add_edge(a, b, kind=kind, bandwidth=bandwidth, count=count)


def _parsed(path: Path, root: str) -> ET.Element:
    with Stream(path) as stream:
        data = stream.rest(_MOST_BYTES)
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise Unreadable("refused: XML with a document type, which NCCL never writes")
    try:
        element = ET.fromstring(data)  # noqa: S314 - no document type, hence no entities
    except (ET.ParseError, ValueError) as error:
        raise Unreadable(f"no whole XML: {error}") from error
    found = element if element.tag == root else element.find(root)
    if found is None:
        raise Unreadable(f"XML without <{root}>")
    return found


def _add_children(graph: Graph, element: ET.Element, parent: str, depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise Unreadable(f"XML nested deeper than {_MOST_DEPTH}")
    for child in element:
        if child.tag == "pci":
            _add_pci(graph, child, parent, depth)
        elif child.tag == "nic":
            _add_nic(graph, child, parent, None)


def _add_pci(graph: Graph, pci: ET.Element, parent: str, depth: int) -> None:
    bus = pci.get("busid", "")
    bandwidth = _pci_bandwidth(pci)
    gpu, nic = pci.find("gpu"), pci.find("nic")
    if gpu is not None:
        name = f"GPU/0-{_bus(bus)}"
        rank, device = _number(gpu.get("rank")), _number(gpu.get("dev"))
        sm = _number(gpu.get("sm"))
        graph.add_node(name, kind="gpu", label=f"GPU {device}", rank=rank, device=device, bus=bus, sm=sm)
        add_link(graph, name, parent, "pci", bandwidth)
        _add_gpu_links(graph, gpu, name, sm or 0)
    elif nic is not None:
        _add_nic(graph, nic, parent, bandwidth, bus)
    else:
        name = f"PCI/0-{_bus(bus)}"
        graph.add_node(name, kind="pci", label=f"PCIe {bus}", bus=bus)
        add_link(graph, name, parent, "pci", bandwidth)
        _add_children(graph, pci, name, depth + 1)


def _add_gpu_links(graph: Graph, gpu: ET.Element, name: str, sm: int) -> None:
    for link in gpu:
        count = _number(link.get("count")) or 1
        if link.tag not in ("nvlink", "xgmi", "c2c"):
            continue
        each = next(speed for least, speed in _NVLINK_GB_S if sm >= least) if link.tag == "nvlink" else None
        bandwidth = each * count if each else _c2c_bandwidth(link, count)
        target = _target(graph, link, name)
        if target != name:
            add_link(graph, name, target, link.tag, bandwidth, count)


def _target(graph: Graph, link: ET.Element, name: str) -> str:
    kind, target = link.get("tclass", ""), link.get("target", "")
    if link.tag == "c2c":
        return next((node for node, data in graph.nodes(data=True) if data["kind"] == "cpu"), name)
    if kind in _GPU_CLASSES:
        other = f"GPU/0-{_bus(target)}"
        if other not in graph:
            graph.add_node(other, kind="gpu", label=f"GPU {target}", bus=target)
        return other
    node = "NVS/0-0" if kind == _SWITCH_CLASS else f"CPU/0-{_bus(target)}"
    graph.add_node(node, kind="switch" if kind == _SWITCH_CLASS else "cpu", label="NVSwitch" if kind == _SWITCH_CLASS else f"CPU {target}")
    return node


def _add_nic(graph: Graph, nic: ET.Element, parent: str, bandwidth: float | None, bus: str = "0") -> None:
    name = f"NIC/0-{_bus(bus)}"
    graph.add_node(name, kind="nic", label="NIC", bus=bus)
    add_link(graph, name, parent, "pci", bandwidth)
    for net in nic.iter("net"):
        device = _number(net.get("dev")) or 0
        speed = _number(net.get("speed"))
        end = f"NET/0-{device:x}"
        graph.add_node(end, kind="net", label=net.get("name") or f"network {device}", name=net.get("name"), device=device)
        add_link(graph, name, end, "network", speed / 8000 if speed else None)


def _pattern(found: ET.Element) -> dict[str, Any]:
    channels = [[_number(gpu.get("dev")) for gpu in channel.iter("gpu")] for channel in found.iter("channel")]
    return {
        "pattern": _PATTERNS.get(_number(found.get("pattern")) or 0, found.get("pattern")),
        "channels": _number(found.get("nchannels")),
        "bandwidth_intra": _real(found.get("speedintra")),
        "bandwidth_inter": _real(found.get("speedinter")),
        "type_intra": found.get("typeintra"),
        "type_inter": found.get("typeinter"),
        "paths": channels,
    }


def _pci_bandwidth(pci: ET.Element) -> float | None:
    """GB/s as NCCL reckons: 0.094 of the transfers a second and lane; 16 lanes where a virtual machine hides them."""
    speed = re.match(r"\s*([\d.]+)\s*GT/s", pci.get("link_speed", ""))
    if speed is None:
        return None
    lanes = _number(pci.get("link_width")) or _DEFAULT_LANES
    return next(lane for least, lane in _PCI_GB_S_PER_LANE if float(speed[1]) >= least) * lanes


def _c2c_bandwidth(link: ET.Element, count: int) -> float | None:
    each = _number(link.get("bw"))
    return each * count / 1000 if each else None


def _bus(text: str) -> str:
    """0000:00:06.0 as NCCL's log writes it: 60."""
    digits = re.sub(r"[^0-9A-Fa-f]", "", text)
    return f"{int(digits, 16):x}" if digits else "0"


def _hexadecimal(text: str | None, default: int) -> str:
    number = _number(text)
    return f"{(number if number is not None else default) & 0xFFFFFFFFFFFFFF:x}"


def _number(text: str | None) -> int | None:
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


def _real(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
