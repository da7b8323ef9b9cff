# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""NCCL's topology, graphs and log become one graph of the machine."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter import ingest
from dtscope_jupyter.ingest import nccl_log, topology
from dtscope_jupyter.ingest.files import Unreadable

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


OLD = """NCCL version 2.10.3+cuda11.3
n1:10:10 [0] NCCL INFO Using network AWS Libfabric
n1:10:20 [0] NCCL INFO CPU/0 (1/1/2)
n1:10:20 [0] NCCL INFO + PCI[12.0] - GPU/1A000 (0)
n1:10:20 [0] NCCL INFO               + NVL[132.0] - NVS/0
n1:10:20 [0] NCCL INFO Channel 00/02 :    0   1
n1:10:20 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
n1:11:21 [1] NCCL INFO Trees [0] -1/-1/-1->1->0 [1] -1/-1/-1->1->0
n1:10:20 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Tree/Simple |    Ring/    LL |    Ring/Simple |
n1:10:20 [0] NCCL INFO  Max NThreads |            512 |            512 |            512 |            512 |
n1:10:20 [0] NCCL INFO     AllReduce |     6.8/  7.9 |    28.0/  0.0 |     6.6/  6.0 |    16.8/ 62.4 |
n1:10:20 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via direct shared memory
n1:10:20 [0] NCCL INFO Channel 01 : 0[1a000] -> 1[1b000] [send] via NET/AWS Libfabric/0/GDRDMA
n1:11:21 [1] NCCL INFO Channel 00 : 1[1b000] -> 0[1a000] via P2P/IPC/read comm 0x7f1 nRanks 02
n1:10:20 [0] NCCL INFO 2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer
n1:10:20 [0] NCCL INFO comm 0x7f0 rank 0 nranks 2 cudaDev 0 busId 1a000 - Init COMPLETE
n1:11:21 [1] NCCL INFO comm 0x7f1 rank 1 nranks 2 cudaDev 1 busId 1b000 - Init COMPLETE
n1:10:20 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo 1 proto 0 time 12.5
"""
NEW = """[2026-11-30 01:02:03] n1:10:20 [0] NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xab - Init START
n1:10:20 [0] NCCL INFO Assigned NET plugin Socket to comm
n1:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
n1:10:20 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer
n1:10:20 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xab - Init COMPLETE
n1:10:20 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}
"""


def test_a_log_of_before_communicators_had_names(tmp_path: Path) -> None:
    """Only Init COMPLETE names the communicator, each process by its own pointer, after all that it has set up."""
    (tmp_path / "x.log").write_text(OLD)
    graph = nccl_log.read(tmp_path / "x.log")
    told = graph.graph
    (only,) = told["communicators"]
    assert (told["version"], told["network"], only["size"], only["channels"], only["nvls_channels"]) == (
        "2.10.3+cuda11.3", "AWS Libfabric", 2, 2, 0,
    )  # fmt: skip
    assert only["ranks"] == {0: "GPU/0-1a000", 1: "GPU/0-1b000"}
    assert only["rings"] == {0: [0, 1]}
    assert only["trees"] == {0: [(0, 1)], 1: [(0, 1)]}
    ways = [(each["source"], each["transport"]) for each in only["connections"]]
    assert ways == [(0, "SHM"), (0, "NET/AWS Libfabric/0/GDRDMA"), (1, "P2P/IPC/read")]
    tuned = {(row["algorithm"], row["protocol"]): (row["latency_us"], row["bandwidth"]) for row in only["tuning"]}
    assert tuned == {("tree", "ll"): (6.8, 7.9), ("ring", "ll"): (6.6, 6.0), ("ring", "simple"): (16.8, 62.4)}
    assert only["choices"] == [{"operation": "all_reduce", "bytes": 4096, "algorithm": "ring", "protocol": "ll", "channels": None}]
    assert set(graph.edges) == {("CPU/0-0", "GPU/0-1a000", 0), ("GPU/0-1a000", "NVS/0-0", 0)}
    assert graph.nodes["GPU/0-1a000"]["rank"] == 0


def test_a_log_with_times_plugins_and_nvls(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(NEW)
    graph = nccl_log.read(tmp_path / "x.log").graph
    (only,) = graph["communicators"]
    assert (graph["network"], only["id"], only["channels"], only["nvls_channels"]) == ("Socket", "0xab", 24, 16)
    assert only["connections"] == [{"source": 0, "destination": 1, "channel": 0, "transport": "P2P/CUMEM/read"}]
    assert only["choices"] == [{"operation": "all_reduce", "bytes": 4096, "algorithm": "nvls", "protocol": "simple", "channels": 16}]


MARKED = (
    "[default0]:{}",
    "[rank0]:{}",
    "[1,0]<stdout>:{}",
    "0: {}",
    "(Worker pid=3) {}",
    "[2026-11-30 10:00:01] {}",
    "\x1b[36m{}\x1b[0m",
    "{}\r",
)


@pytest.mark.parametrize("marked", MARKED)
def test_a_log_whose_lines_a_launcher_has_marked(captures: Path, tmp_path: Path, marked: str) -> None:
    with gzip.open(captures / "h200" / "host" / "nccl_debug_info.log.gz", "rt") as file:
        lines = file.read().splitlines()
    (tmp_path / "plain.log").write_text("\n".join(lines))
    (tmp_path / "marked.log").write_text("\n".join(marked.format(line) for line in lines))
    plain, found = (ingest.read([tmp_path / name]).topology for name in ("plain.log", "marked.log"))
    assert plain is not None
    assert found is not None
    assert found.graph == plain.graph
    assert _edges(found) == _edges(plain)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([OLD, NEW]), st.data())
def test_spoilt_logs_give_a_graph_or_one_line(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(st.sampled_from(["9" * 5000, "-", "/", "[", " ", "|", "\n", "\0", "é", "zz"])) + text[place:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        path.write_text(text)
        found = _graph_or_reason(path)
    if isinstance(found, str):
        assert len(found.splitlines()) == 1
    else:
        assert {"rings", "trees"} <= set(found.graph) or not found.graph["communicators"]


def test_a_log_with_a_blob_of_a_million_letters_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("a1-." * 2**18 + "\n" + NEW)
    (tmp_path / "y.log").write_text(NEW)
    found, plain = (ingest.read([tmp_path / name]).topology for name in ("x.log", "y.log"))
    assert found is not None
    assert plain is not None
    assert found.graph == plain.graph


def _graph_or_reason(path: Path) -> topology.Graph | str:
    try:
        return nccl_log.read(path)
    except Unreadable as error:
        return str(error)
