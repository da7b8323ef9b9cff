# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""An unchanged script by torchrun on two hosts (network namespaces) ships to a collector, through a cut of the network."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import namespaces
import pytest

from dtscope_jupyter import rundir, transport
from dtscope_jupyter.reading import AttemptReader
from tests.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

pytestmark = pytest.mark.skipif(namespaces.MISSING, reason="network namespaces need root and iproute2")

STEPS = 60
CUT_S = float(os.environ.get("DTSCOPE_TEST_CUT_S", "20"))
TRAIN = f"""
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({STEPS}):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.05)
dist.destroy_process_group()
"""
COLLECT = """
import sys
from pathlib import Path
from dtscope_jupyter import transport
transport.collect(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
"""


class _Hosts(namespaces.Hosts):
    """10.77.0.1 and 10.77.0.2."""

    def cut(self, seconds: float) -> None:
        """Takes host b off the network."""
        namespaces.run("ip", "-n", self.names[1], "link", "set", self.cables[1], "down")
        time.sleep(seconds)
        namespaces.run("ip", "-n", self.names[1], "link", "set", self.cables[1], "up")


@pytest.fixture
def hosts() -> Iterator[_Hosts]:
    hosts = _Hosts("s", "10.77.0")
    with namespaces.made(hosts):
        yield hosts


def _rank(hosts: _Hosts, rank: int, script: Path, keys: Path, folder: Path) -> subprocess.Popen[bytes]:
    """torchrun for one host, whose ranks record into a folder that only this host has."""
    torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", f"--node-rank={rank}", "--master-addr=10.77.0.1"]
    variables = {
        "DTRAINSCOPE_ENABLE": "1",
        "DTRAINSCOPE_LOG_DIR": str(folder),
        "DTRAINSCOPE_COLLECTOR": "tcp://10.77.0.1:7077",
        "DTRAINSCOPE_KEYS": str(keys / "rank.json"),
        "GLOO_SOCKET_IFNAME": hosts.cables[rank],
        "OMP_NUM_THREADS": "1",
    }
    return hosts.start(rank, sys.executable, *torchrun, "--master-port=29700", str(script), **variables)


def test_two_hosts_ship_to_a_collector_through_a_cut(hosts: _Hosts, tmp_path: Path) -> None:
    keys, collected, script = tmp_path / "keys", tmp_path / "collected", tmp_path / "train.py"
    script.write_text(TRAIN)
    transport.make_keys(keys)
    collector = hosts.start(0, sys.executable, "-c", COLLECT, "tcp://10.77.0.1:7077", str(collected), str(keys))
    try:
        ranks = [_rank(hosts, rank, script, keys, tmp_path / f"host{rank}") for rank in range(2)]
        until(lambda: len(_steps(collected)) == 2, "steps of both ranks")
        hosts.cut(CUT_S)
        assert [rank.wait(200) for rank in ranks] == [0, 0]
        until(lambda: _steps(collected) == {0: STEPS, 1: STEPS}, "every step")
        tables = _tables(collected)
    finally:
        collector.terminate()
        assert collector.wait(60) == 0
    for rank in range(2):
        steps = tables["steps"].filter([value == rank for value in tables["steps"]["rank"].to_pylist()])
        assert steps["step"].to_pylist() == list(range(STEPS))
    trips = [row for row in tables["clocks"].to_pylist() if row["method"] == "round_trip"]
    assert {row["rank"] for row in trips} == {0, 1}
    assert all(abs(row["offset_ns"]) <= row["uncertainty_ns"] + 5_000_000 for row in trips), "one machine, so one clock"


def _tables(collected: Path) -> dict[str, pa.Table]:
    run = next(path for path in collected.iterdir() if rundir.is_run(path))
    reader = AttemptReader(rundir.attempts(run)[-1])
    reader.poll()
    return reader.tables()


def _steps(collected: Path) -> dict[int, int]:
    if not collected.exists() or not any(rundir.is_run(path) for path in collected.iterdir()):
        return {}
    counts: dict[int, int] = {}
    for rank in _tables(collected)["steps"]["rank"].to_pylist():
        counts[rank] = counts.get(rank, 0) + 1
    return counts
