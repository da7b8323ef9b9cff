# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""NCCL's topology, graphs and log become one graph of the machine."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import ingest
from dtscope_jupyter.ingest import nccl_log, topology
from dtscope_jupyter.ingest.files import Unreadable

if TYPE_CHECKING:
    from pathlib import Path

PAIR = """<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
        <gpu dev="0" sm="80" rank="0"><nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="8 GT/s" link_width="0">
        <gpu dev="1" sm="80" rank="1"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:05:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>"""


def _edges(graph: topology.Graph) -> set[tuple[frozenset[str], str, float | None]]:
    return {(frozenset((a, b)), data["kind"], data["bandwidth"]) for a, b, data in graph.edges(data=True)}


def test_a_machine_of_two_gpus_behind_a_switch(tmp_path: Path) -> None:
    (tmp_path / "topo.xml").write_text(PAIR)
    graph = ingest.read([tmp_path / "topo.xml"]).topology
    assert graph is not None
    assert {node: data["kind"] for node, data in graph.nodes(data=True)} == {
        "CPU/0-0": "cpu", "PCI/0-1000": "pci", "GPU/0-2000": "gpu", "GPU/0-3000": "gpu", "NIC/0-5000": "nic", "NET/0-0": "net",
    }  # fmt: skip
    assert _edges(graph) == {
        (frozenset(("CPU/0-0", "PCI/0-1000")), "pci", 24.0), (frozenset(("PCI/0-1000", "GPU/0-2000")), "pci", 12.0),
        (frozenset(("PCI/0-1000", "GPU/0-3000")), "pci", 12.0), (frozenset(("PCI/0-1000", "NIC/0-5000")), "pci", 48.0),
        (frozenset(("GPU/0-2000", "GPU/0-3000")), "nvlink", 80.0), (frozenset(("NIC/0-5000", "NET/0-0")), "network", 50.0),
    }  # fmt: skip
    assert graph.nodes["GPU/0-3000"]["rank"] == 1


def test_the_h200_machine_is_the_same_by_xml_and_log(captures: Path) -> None:
    host = captures / "h200" / "host"
    by_xml = topology.read_topology(host / "nccl_topo.xml")
    by_log = nccl_log.read(host / "nccl_debug_info.log.gz")
    assert set(by_xml) == set(by_log)
    assert {edge[:2] for edge in _edges(by_xml)} == {edge[:2] for edge in _edges(by_log)}
    links = [(a, b, data) for a, b, data in by_xml.edges(data=True) if data["kind"] == "nvlink"]
    assert len(links) == 4
    for a, b, data in links:
        assert data["bandwidth"] == pytest.approx(370.8)
        assert data["count"] == 18
        assert next(iter(by_log.get_edge_data(a, b).values()))["bandwidth"] == 370.8
    assert {node: data["rank"] for node, data in by_log.nodes(data=True) if data["kind"] == "gpu"} == {
        node: data["rank"] for node, data in by_xml.nodes(data=True) if data["kind"] == "gpu"
    }


def test_the_h200_log_tells_rings_trees_transports_and_tuning(captures: Path) -> None:
    graph = nccl_log.read(captures / "h200" / "host" / "nccl_debug_info.log.gz").graph
    assert (graph["version"], graph["network"]) == ("2.28.9+cuda13.0", "Socket")
    communicator = graph["communicators"][0]
    assert (communicator["size"], communicator["channels"], sorted(communicator["ranks"])) == (4, 24, [0, 1, 2, 3])
    assert graph["rings"] == {channel: [0, 1, 2, 3] for channel in range(24)}
    assert all(sorted(edges) == [(0, 1), (1, 2), (2, 3)] for edges in graph["trees"].values())
    assert {(c["source"], c["destination"]) for c in graph["connections"]} == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert {c["transport"] for c in graph["connections"]} == {"P2P/CUMEM"}
    assert len(graph["connections"]) == 4 * 24
    tuned = {(row["operation"], row["algorithm"], row["protocol"]): (row["latency_us"], row["bandwidth"]) for row in graph["tuning"]}
    assert tuned["all_reduce", "ring", "simple"] == (28.8, 240.0)
    assert tuned["all_reduce", "tree", "ll128"] == (21.5, 128.8)
    assert ("broadcast", "tree", "ll") not in tuned, "no bandwidth: not possible"
    chosen = [row for row in graph["choices"] if row["bytes"] == 131072000]
    assert chosen == [{"operation": "all_reduce", "bytes": 131072000, "algorithm": "ring", "protocol": "simple", "channels": 24}]
    assert graph["paths"]["GPU/0-60", "GPU/0-90"] == {"hops": 2, "bandwidth": 370.8, "type": "NVL"}


def test_the_h200_graph_file_tells_patterns(captures: Path) -> None:
    patterns = topology.read_graph(captures / "h200" / "host" / "nccl_graph.xml").graph["patterns"]
    assert [p["pattern"] for p in patterns] == ["ring", "balanced_tree", "collnet_direct", "tree", "nvls"]
    ring = patterns[0]
    assert (ring["channels"], ring["bandwidth_intra"], ring["type_intra"]) == (12, 30.0, "NVL")
    assert ring["paths"] == [[0, 1, 2, 3]] * 12


def test_all_three_together_are_one_graph(captures: Path) -> None:
    found = ingest.read([captures / "h200" / "host"])
    assert found.topology is not None
    assert (len(found.topology), found.topology.number_of_edges()) == (8, 10)
    assert {"patterns", "rings", "connections", "paths"} <= set(found.topology.graph)
    assert {path.name.partition(".")[0] for path in found.files} == {"nccl_debug_info", "nccl_graph", "nccl_topo", "nvidia_smi_samples"}


def test_lines_go_to_the_communicator_that_their_process_set_up_last(tmp_path: Path) -> None:
    init = "ncclCommInitRank comm 0x{0} rank {1} nranks {2} cudaDev 0 nvmlDev 0 busId {3} commId 0x{0} - Init START"
    lines = [
        ("n1:7:7", init.format("a", 0, 4, "1b000")), ("n2:8:8", init.format("a", 2, 4, "1c000")),
        ("n1:7:9", "Channel 00/02 :    0   1   2   3"), ("n1:7:9", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read"),
        ("n1:7:9", "Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA"), ("n1:7:9", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read"),
        ("n1:7:7", init.format("b", 0, 2, "1b000")), ("n1:7:9", "Channel 00/02 :    0   1"), ("n2:8:8", "Channel 01/02 :    3   2   1   0"),
    ]  # fmt: skip
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress("".join(f"{where} [0] NCCL INFO {text}\n" for where, text in lines).encode()))
    graph = nccl_log.read(path).graph
    large, small = graph["communicators"]
    assert (large["rings"], small["rings"]) == ({0: [0, 1, 2, 3], 1: [3, 2, 1, 0]}, {0: [0, 1]})
    assert [(c["source"], c["transport"]) for c in large["connections"]] == [(0, "P2P/IPC/read"), (3, "NET/IB/0/GDRDMA")]
    assert graph["rings"] is large["rings"]
    assert large["ranks"] == {0: "GPU/0-1b000", 2: "GPU/0-1c000"}


@pytest.mark.parametrize(
    "inner", ["<pci/>" * 3, "<pci busid='x'><gpu/></pci>", "<nic><net/></nic>", "<pci busid='0:1:2.0'><gpu dev='q' sm='a'/></pci>"]
)
def test_odd_topologies_give_what_they_tell(tmp_path: Path, inner: str) -> None:
    path = tmp_path / "t.xml"
    path.write_text(f"<system><cpu>{inner}</cpu></system>")
    assert "CPU/0-0" in topology.read_topology(path)


def test_xml_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.xml"
    path.write_text("<system><cpu>" + "<pci>" * 1000 + "</pci>" * 1000 + "</cpu></system>")
    with pytest.raises(Unreadable, match="nested deeper than 64"):
        topology.read_topology(path)
