# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Two ranks in two network namespaces, joined by a link of 800 Mbit/s: what shares it, and what else uses it."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import namespaces
import pytest

import dtscope_jupyter as dts
from dtscope_jupyter.store import BlockReader
from tests.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from dtscope_jupyter.diagnosis import Finding

pytestmark = pytest.mark.skipif(
    namespaces.MISSING or shutil.which("tc") is None, reason="network namespaces need root, iproute2 and tc"
)

RATE = "800mbit"
TRAIN = """
import sys, torch, torch.distributed as dist
share, steps = sys.argv[1] == "share", int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
groups = [dist.new_group([0, 1]) for _ in range(2)]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [torch.zeros(600_000) for _ in groups]
for step in range(steps):
    model(torch.randn(8, 64)).square().mean().backward()
    if share and step % 2:
        for work in [dist.all_reduce(one, group=group, async_op=True) for one, group in zip(data, groups)]:
            work.wait()
    else:
        for one, group in zip(data, groups):
            dist.all_reduce(one, group=group, async_op=True).wait()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
OUTSIDER = """
import socket, sys
if sys.argv[1] == "sink":
    server = socket.create_server(("10.78.0.2", 7001))
    server.settimeout(600)
    taken = [server.accept()[0] for _ in range(4)]
    while any([one.recv(1 << 20) for one in taken]):
        pass
else:
    sent = [socket.create_connection(("10.78.0.2", 7001)) for _ in range(4)]
    for one in sent:
        one.settimeout(0.05)
    while True:
        for one in sent:
            try:
                one.send(bytes(1 << 16))
            except TimeoutError:
                pass
"""


class Uplink(namespaces.Hosts):
    """10.78.0.1 and 10.78.0.2."""

    def __init__(self, folder: Path) -> None:
        super().__init__("u", "10.78.0")
        self.folder = folder

    def make(self) -> None:
        super().make()
        for name, cable in zip(self.names, self.cables, strict=True):
            namespaces.run("tc", "-n", name, "qdisc", "add", "dev", cable, "root", "tbf", "rate", RATE, "burst", "128kb", "latency", "50ms")

    def python(self, host: int, code: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        return self.start(host, sys.executable, "-c", code, *arguments, **variables)

    def train(self, *arguments: str) -> list[subprocess.Popen[bytes]]:
        script = self.folder / "train.py"
        script.write_text(TRAIN)
        same = {
            "DTRAINSCOPE_ENABLE": "1", "DTRAINSCOPE_LOG_DIR": str(self.folder / "runs"), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
            "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29712", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        start = f"import runpy, sys; sys.argv[0] = {str(script)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
        return [self.python(rank, start, *arguments, RANK=str(rank), GLOO_SOCKET_IFNAME=self.cables[rank], **same) for rank in range(2)]

    def wait_step(self, step: int) -> None:
        """Waits until rank 0 has recorded a step."""
        until(lambda: any(_steps(folder) > step for folder in self.folder.glob("runs/*/rank-0000")), f"step {step}")

    def diagnosed(self, ranks: list[subprocess.Popen[bytes]]) -> list[Finding]:
        assert [each.wait(300) for each in ranks] == [0, 0]
        return dts.open(self.folder / "runs").diagnose().findings


def _steps(folder: Path) -> int:
    return sum(batch.num_rows for batch in BlockReader(folder, "steps").batches())


@pytest.fixture
def uplink(tmp_path: Path) -> Iterator[Uplink]:
    uplink = Uplink(tmp_path)
    with namespaces.made(uplink):
        yield uplink


def beside(found: list[Finding]) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.cause, each.ranks) for each in found if each.kind == "contention"]


def test_real_process_groups_that_share_a_link_are_named(uplink: Uplink) -> None:
    found = uplink.diagnosed(uplink.train("share", "60"))
    assert beside(found) == [("process_group", (0, 1))]
    (finding,) = [each for each in found if each.kind == "contention"]
    assert finding.evidence["process_groups"] == ["1", "2"]
    assert sum(step % 2 for step in finding.steps) >= 0.9 * len(finding.steps)


def test_an_outsider_on_the_link_is_told_by_what_the_link_carries(uplink: Uplink) -> None:
    outsiders = [uplink.python(1, OUTSIDER, "sink")]
    ranks = uplink.train("apart", "280")
    try:
        uplink.wait_step(90)
        outsiders.append(uplink.python(0, OUTSIDER, "source"))
        uplink.wait_step(180)
        outsiders[1].kill()
        found = uplink.diagnosed(ranks)
    finally:
        for one in outsiders:
            one.kill()
            one.wait()
    assert beside(found) == [("link", (0, 1))]
    assert [each for each in found if each.kind in ("slow_link", "straggler") and each.severity != "info"] == []


def test_a_link_that_nobody_shares_is_no_contention(uplink: Uplink) -> None:
    assert beside(uplink.diagnosed(uplink.train("apart", "80"))) == []
