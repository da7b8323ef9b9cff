# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The magics in a real Jupyter kernel: what it shows, interrupts, and its death."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from tests.waiting import WAIT_S, alive, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jupyter_client.blocking.client import BlockingKernelClient

GROUP = "import time, torch, torch.distributed as dist\ndist.init_process_group()\nprint('ready', flush=True)\n"
COLLECTIVE = GROUP + "dist.recv(torch.ones(1))"
PIDS = "from dtscope_jupyter import session\ns = session.current()\nprint(s.warm.pid, *s.profile.job.pids)"


class Kernel:
    """A kernel and what its cells put out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(WAIT_S)

    def run(self, cell: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The reply and the outputs of a cell."""
        outputs: list[dict[str, Any]] = []
        reply = self.client.execute_interactive(cell, timeout=WAIT_S, output_hook=outputs.append)
        kept = ("stream", "display_data", "execute_result", "error")
        return reply["content"], [message["content"] for message in outputs if message["msg_type"] in kept]

    def text(self, cell: str) -> str:
        return "".join(output.get("text", "") for output in self.run(cell)[1])

    def logged(self, word: str) -> bool:
        logs = [*self.folder.glob("dtscope-runs/*/rank-*/log.txt")]
        return len(logs) >= 2 and all(word in log.read_text() for log in logs[-2:])

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path)
    made.run("%load_ext dtscope_jupyter")
    yield made
    made.close()


def test_a_cell_shows_panels_output_and_report_and_the_kernel_never_imports_torch(kernel: Kernel) -> None:
    cell = """%%dtscope profile -n 2 --pull done
import torch, torch.distributed as dist
dist.init_process_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
print("trained")
done = True"""
    reply, outputs = kernel.run(cell)
    assert reply["status"] == "ok"
    panels, report = (output["data"] for output in outputs if "data" in output)
    assert "application/vnd.jupyter.widget-view+json" in panels
    assert set(report) == {"image/png", "text/plain"}
    assert "".join(output.get("text", "") for output in outputs) == "trained\n"
    assert kernel.text("import sys\nprint(done, 'torch' in sys.modules)") == "True False\n"


def test_an_error_is_the_cells_own_output(kernel: Kernel) -> None:
    reply, outputs = kernel.run("%%dtscope profile -n 2\nx = 1\n1 / 0")
    assert (reply["status"], reply["ename"]) == ("error", "RankError")
    assert reply["evalue"] in {f"rank {rank}: ZeroDivisionError: division by zero" for rank in (0, 1)}
    assert outputs[-1]["traceback"][2:4] == ["  Cell In[2], line 3, in <module>", "    1 / 0"]


@pytest.mark.parametrize("program", [GROUP + "time.sleep(600)", COLLECTIVE], ids=["sleeping", "in a collective"])
def test_an_interrupt_ends_the_ranks_and_the_report_appears(kernel: Kernel, program: str) -> None:
    sent = kernel.client.execute(f"%%dtscope profile -n 2\n{program}")
    until(lambda: kernel.logged("ready"))
    kernel.manager.interrupt_kernel()
    if program is COLLECTIVE:
        kernel.manager.interrupt_kernel()
    reply = kernel.client.get_shell_msg(timeout=WAIT_S)
    assert reply["parent_header"]["msg_id"] == sent
    assert reply["content"]["ename"] == "Interrupted", "\n".join(reply["content"]["traceback"])
    shown = [message["content"]["data"] for message in iter_iopub(kernel) if message["msg_type"] == "display_data"]
    assert set(shown[-1]) == {"image/png", "text/plain"}
    pids = [int(pid) for pid in kernel.text(PIDS).split()]
    assert not any(map(alive, pids[1:]))
    assert alive(pids[0])


@pytest.mark.parametrize("end", ["kill", "restart", "crash"])
def test_a_kernel_that_ends_leaves_no_process(kernel: Kernel, end: str) -> None:
    kernel.run(f"%%dtscope profile -n 2 --background\n{COLLECTIVE}")
    until(lambda: kernel.logged("ready"))
    pids = [int(pid) for pid in re.findall(r"\d+", kernel.text(PIDS))]
    assert len(pids) == 3
    assert all(map(alive, pids))
    if end == "kill":
        kernel.manager.signal_kernel(signal.SIGKILL)
    elif end == "restart":
        kernel.manager.restart_kernel(now=False)
    else:
        kernel.client.execute("import os\nos.abort()")
    until(lambda: not any(map(alive, pids)))


def iter_iopub(kernel: Kernel) -> list[dict[str, Any]]:
    messages = []
    while True:
        message = kernel.client.get_iopub_msg(timeout=WAIT_S)
        messages.append(message)
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle" and len(messages) > 3:
            return messages
