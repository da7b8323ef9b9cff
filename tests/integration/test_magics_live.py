# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What is asked of ranks while they run, hangs among it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import session
from dtscope_jupyter.transport import make_keys
from tests.waiting import free_port, until

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

STUCK = """
import time, torch, torch.distributed as dist
dist.init_process_group()
for _ in range(5):
    dist.all_reduce(torch.ones(4))
print("waiting", flush=True)
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(4))
"""


def logged() -> bool:
    logs = list(Path().glob("dtscope-runs/*/rank-*/log.txt"))
    return len(logs) == 2 and all("waiting" in log.read_text() for log in logs)


class TestHang:
    def test_stacks_and_dumps_of_every_rank_are_saved_and_the_run_is_ended(
        self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        error = shell.run_cell(f"%%dtscope profile -n 2 --on-hang stop\n{STUCK}").error_in_exec
        assert str(error).startswith("rank 1: hang: Rank 1 hangs: rank 0 ")
        assert "Stacks and Flight Recorder dumps of every rank are in dtscope-runs/" in capsys.readouterr().err
        for rank in range(2):
            (folder,) = Path().glob(f"dtscope-runs/*/rank-{rank:04d}")
            assert (folder / "stacks-000.txt").exists()
            assert (folder / "flight_recorder-000.json").exists()
        stack = next(Path().glob("dtscope-runs/*/rank-0001/stacks-000.txt")).read_text()
        line = 2 + STUCK.splitlines().index("    time.sleep(600)")
        assert f'File "Cell In[{shell.execution_count}]", line {line} in <module>' in stack
        assert f"at Cell In[{shell.execution_count}]:{line}" in str(error)


def _of_ranks(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was shown, without what a rank printed meanwhile."""
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("rank ")]


class TestCapture:
    def test_a_live_run_gives_stacks_and_dumps_and_profiles_its_next_steps(
        self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert shell.run_cell(f"%%dtscope profile -n 2 --background\n{STUCK}").success
        until(logged)
        capsys.readouterr()
        assert shell.run_cell("%dtscope capture stacks --ranks 1").success
        shown = capsys.readouterr().out
        (line,) = [line for line in shown.splitlines() if line.startswith("rank 1: dtscope-runs/")]
        assert Path(line.removeprefix("rank 1: ")).exists()
        assert shell.run_cell("%dtscope capture flight_recorder").success
        assert [line[:8] for line in _of_ranks(capsys)] == ["rank 0: ", "rank 1: "]
        assert shell.run_cell("%dtscope capture profile --steps 3").success
        assert _of_ranks(capsys) == ["rank 0: profiles its next 3 steps", "rank 1: profiles its next 3 steps"]
        assert "--ranks 7: this run has no such rank" in str(shell.run_cell("%dtscope capture stacks --ranks 7").error_in_exec)
        profile = session.current().profile
        assert profile is not None
        capsys.readouterr()
        shell.run_cell("%dtscope stop")
        assert re.search(r"^dtscope: dtscope-runs/\S+: 2 ranks ended after \d+ s$", capsys.readouterr().out, re.MULTILINE)
        until(lambda: profile.run is not None)
        assert "ranks ended" not in capsys.readouterr().err
        assert "no stacks could be taken of dtscope-runs" in str(shell.run_cell("%dtscope capture stacks").error_in_exec)


class TestCollector:
    def test_a_run_on_another_host_is_attached_to_through_it(self, shell: InteractiveShell, tmp_path: Path) -> None:
        assert shell.run_cell("%%dtscope profile -n 1 --name far\nprint('hello')").success
        (folder,) = tmp_path.glob("dtscope-runs/*-far/rank-0000")
        here, there = tmp_path / "here", tmp_path / "there"
        here.mkdir()
        keys = {path.stem: str(path) for path in make_keys(tmp_path / "keys")}
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "dtscope_jupyter.cli", "collect", "--listen", endpoint, "--dir", str(there)]
        collector = subprocess.Popen([*command, "--keys", keys["collector"]], stdout=subprocess.PIPE, text=True)
        assert collector.stdout is not None
        try:
            assert collector.stdout.readline() == f"listening at {endpoint}, writing to {there}\n"
            ship = [sys.executable, "-m", "dtscope_jupyter.transport", str(folder), endpoint, "--keys", keys["rank"]]
            assert subprocess.run(ship, check=False).returncode == 0
            shell.run_cell(f"import os; os.chdir({str(here)!r})")
            refused = shell.run_cell(f"%dtscope attach {endpoint}").error_in_exec
            assert "give --keys FILE, or set DTRAINSCOPE_KEYS" in str(refused)
            assert shell.run_cell(f"%dtscope attach {endpoint} --keys {keys['notebook']}").success
            assert session.current().run.path == here / "dtscope-runs" / folder.parent.name
            log = here / "dtscope-runs" / folder.parent.name / "rank-0000" / "log.txt"
            until(log.exists)
            assert shell.run_cell("%dtscope detach").success
        finally:
            collector.terminate()
            collector.wait()


def test_probe_measures_every_pair_and_leaves_no_run(shell: InteractiveShell, tmp_path: Path) -> None:
    def measured() -> bool:
        """All within its 2 s, for which a machine may be too busy now and then."""
        found = shell.run_cell("%dtscope probe links -n 3").result.frame
        assert list(zip(found["rank_a"], found["rank_b"], strict=True)) == [(0, 1), (0, 2), (1, 2)]
        return bool((found[["latency_us", "bandwidth_gb_s"]] > 0).all(axis=None))

    assert any(measured() for _ in range(3))
    assert list(tmp_path.iterdir()) == []


def test_faults_are_rehearsed_once(shell: InteractiveShell) -> None:
    shell.run_cell("%dtscope inject host_stall --rank 1 --ms 40 --step 1 --steps 2")
    cell = """%%dtscope profile -n 2
import torch, torch.distributed as dist
dist.init_process_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()"""
    assert shell.run_cell(cell).success
    notes = session.current().run.table("notes")
    assert notes.loc[notes["kind"] == "fault", "rank"].tolist() == [1]
    assert session.current().faults == []


class TestCommandLine:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "dtscope_jupyter.cli", *arguments], capture_output=True, text=True, check=False)

    def test_a_report_as_text_and_json(self, captures: Path) -> None:
        folder = str(captures / "h200" / "ddp_straggler")
        text = self.run("report", folder)
        assert (text.returncode, text.stderr) == (0, "")
        assert "Rank 2" in text.stdout
        told = json.loads(self.run("report", folder, "--json").stdout)
        assert told["findings"][0]["kind"] == "straggler"

    @pytest.mark.parametrize("arguments", [("report", "/nowhere"), ("report", "/dev/null"), ("doctor", "99999999")])
    def test_what_cant_be_read_is_one_line_and_exit_2(self, arguments: tuple[str, ...]) -> None:
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("dtscope: ")
        assert done.stderr.count("\n") == 1

    def test_what_is_damaged_is_a_line_each(self, captures: Path, tmp_path: Path) -> None:
        folder = captures / "h200" / "ddp_one_bucket"
        (tmp_path / "rank0.json.gz").write_bytes((folder / "rank0.json.gz").read_bytes())
        (tmp_path / "rank1.json.gz").write_bytes((folder / "rank1.json.gz").read_bytes()[:200_000])
        (tmp_path / "rank2.json").write_bytes(b"")
        (tmp_path / "other.txt").write_text("nothing of ours")
        done = self.run("report", str(tmp_path))
        assert done.returncode == 0
        first, second = sorted(done.stderr.splitlines())
        assert first.startswith("dtscope: rank1.json.gz: the gzip data end early: the ")
        assert second == "dtscope: rank2.json: empty file"

    def test_keys_are_made_for_the_owner_only(self, tmp_path: Path) -> None:
        done = self.run("keys", str(tmp_path / "keys"))
        assert done.returncode == 0
        assert all(Path(line).stat().st_mode & 0o777 == 0o600 for line in done.stdout.splitlines())
