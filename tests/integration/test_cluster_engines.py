# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""%%dtscope profile --cluster on two engines of a real ipyparallel cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipyparallel
import psutil
import pytest
from IPython.core.error import UsageError

import dtscope_jupyter as dts
from dtscope_jupyter import asking, cluster, places, session
from dtscope_jupyter.cluster import engine
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Interrupted, RankError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group()
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 16) * (1 + rank)).square().mean()
    loss.backward()
    optimizer.step()
print("trained", rank)
"""
PROFILE = "%%dtscope profile --cluster two"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of the user's own; the cluster `two` is found by its name below IPYTHONDIR."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("ipython")
        patch.setenv("IPYTHONDIR", str(home))
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # engines find what these tests have them call
        started = ipyparallel.Cluster(n=2, cluster_id="two", profile_dir=str(home / "profile_default"))
        client = started.start_and_connect_sync(n=2)
        yield client
        client.close()
        started.stop_cluster_sync()


@pytest.fixture(scope="module")
def loaded(engines: Any, loaded: InteractiveShell) -> InteractiveShell:
    """Begun where the engines' cluster is found by its name."""
    assert len(engines.ids) == 2
    return loaded


def state() -> dict[str, Any]:
    """What an engine is, where something could have been left behind."""
    names = {name for name in sys.modules if name.split(".")[0] == "torch"}
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("dtscope")]
    return {"environment": dict(os.environ), "cwd": str(Path.cwd()), "torch": names, "threads": threads, "children": children()}


def children() -> list[str]:
    return [child.name() for child in psutil.Process().children(recursive=True)]


def assert_left(engines: Any, before: list[dict[str, Any]]) -> None:
    """The engines come to be as they were: a process that was ended takes its moment to be gone."""
    deadline = time.monotonic() + 60
    while (now := engines[:].apply_sync(state)) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert now == before


def lease(seconds: float) -> None:
    engine._LEASE_S = seconds


def logged(word: str) -> bool:
    return all(any(word in log.read_text() for log in Path().glob(f"dtscope-runs/*/rank-{rank:04d}/log.txt")) for rank in range(2))


def test_it_records_reports_and_brings_values_back_and_leaves_nothing(
    shell: InteractiveShell, engines: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = engines[:].apply_sync(state)
    shell.user_ns["bias"] = 2
    cell = f"{PROFILE} --name far --push bias --pull step,seen:all\n{TRAIN}seen = (bias + rank, os.getppid(), dict(os.environ))"
    assert shell.run_cell(cell).success
    output = capsys.readouterr().out
    assert output.startswith("trained 0\n")
    assert "far: 2 ranks" in output
    assert shell.user_ns["step"] == 7
    values, parents, environments = zip(*shell.user_ns["seen"], strict=True)
    assert values == (2, 3)
    assert len(set(parents) | set(engines[:].apply_sync(os.getpid))) == 4
    for rank, environment in enumerate(environments):
        told = {name: environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")}
        expected = {"RANK": f"{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": f"{rank}", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
        assert told == expected | {"MASTER_ADDR": "127.0.0.1"}
    run = session.current().run
    steps = run.table("steps")
    assert sorted(zip(steps["rank"], steps["step"], strict=True)) == [(rank, step) for rank in range(2) for step in range(8)]
    assert set(run.table("collectives")["rank"]) == set(run.table("gradients")["rank"]) == {0, 1}
    assert "trained 1" in next(Path().glob("dtscope-runs/*-far/rank-0001/log.txt")).read_text()
    assert_left(engines, before)


def test_again_on_the_same_engines_and_as_a_function(shell: InteractiveShell, engines: Any, tmp_path: Path) -> None:
    del shell, engines

    def train(scale: int) -> None:
        import torch
        import torch.distributed as dist

        dist.init_process_group()
        dist.all_reduce(torch.ones(scale))

    runs = [dts.profile(train, args=(4,), cluster="two", directory=tmp_path / "run") for _ in range(2)]
    assert [run.attempt.number for run in runs if run.attempt] == [0, 1]
    assert all(set(run.table("collectives")["rank"]) == {0, 1} for run in runs)


def test_a_ranks_error_is_the_cells(shell: InteractiveShell, engines: Any, capsys: pytest.CaptureFixture[str]) -> None:
    before = engines[:].apply_sync(state)
    cell = f"{PROFILE}\n{TRAIN}\nif rank == 1:\n    raise ValueError('no such luck')\ndist.barrier()"
    error = shell.run_cell(cell).error_in_exec
    assert isinstance(error, RankError)
    assert str(error) == "rank 1: ValueError: no such luck"
    line = 1 + cell.splitlines().index("    raise ValueError('no such luck')")
    assert f"Cell In[{shell.execution_count}], line {line}" in capsys.readouterr().out
    assert len(session.current().run.table("steps")) == 16
    assert_left(engines, before)


@pytest.mark.parametrize("wait", ["import time; time.sleep(600)", "dist.barrier() if rank else __import__('time').sleep(600)"])
def test_an_interrupt_ends_the_ranks_also_in_a_collective(shell: InteractiveShell, engines: Any, wait: str) -> None:
    before = engines[:].apply_sync(state)

    def interrupt() -> None:
        until(lambda: logged("waiting"))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    error = shell.run_cell(f"{PROFILE}\n{TRAIN}print('waiting', flush=True)\n{wait}").error_in_exec
    assert isinstance(error, Interrupted)
    assert len(session.current().run.table("steps")) == 16
    assert_left(engines, before)


def test_a_live_run_is_asked_through_its_engines(shell: InteractiveShell) -> None:
    assert shell.run_cell(f"{PROFILE} --background\n{TRAIN}print('waiting', flush=True)\nimport time; time.sleep(600)").success
    until(lambda: logged("waiting"))
    profile = session.current().running
    assert profile is not None
    world = profile.job.world
    assert isinstance(world, cluster.ClusterWorld)
    asking.routes[profile.attempt.path] = world.ask
    lines = asking.capture(profile.attempt, "stacks", None, None)
    assert [line.split(":")[0] for line in lines] == ["rank 0", "rank 1"]
    assert "time.sleep" in Path(lines[1].split(": ")[1]).read_text() or "Cell In" in Path(lines[1].split(": ")[1]).read_text()
    session.current().stop()
    until(lambda: session.current().running is None)
    assert profile.attempt.path not in asking.routes


def test_the_ranks_end_when_the_notebook_is_gone(shell: InteractiveShell, engines: Any) -> None:
    del shell
    before = engines[:].apply_sync(children)
    program = TRAIN + "import time\nprint('waiting', flush=True)\ntime.sleep(600)"
    code = f"import dtscope_jupyter as dts\ndts.profile(exec, args=({program!r}, {{}}), cluster='two')"
    notebook = psutil.Popen([sys.executable, "-c", code])
    until(lambda: logged("waiting"))
    assert all(now != then for now, then in zip(engines[:].apply_sync(children), before, strict=True))
    notebook.kill()
    notebook.wait()
    engines[:].apply_sync(lease, 1.0)
    until(lambda: engines[:].apply_sync(children) == before)
    engines[:].apply_sync(lease, 60.0)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ("--cluster nine", "no ipyparallel cluster is named 'nine'; known are two: start it with ipcluster start --cluster-id=nine"),
            ("--cluster two -n 3", "-n 3: cluster 'two' has 2 engines, a rank each: choose 1 to 2"),
            ("--cluster two -n 0", "-n 0: cluster 'two' has 2 engines, a rank each: choose 1 to 2"),
            ("--cluster two --keep", "--keep is for ranks of this host"),
            ("--cluster two --backend nccl", "--backend nccl: cluster 'two' would have 2 ranks on"),
        ],
    )
    def test_what_cant_be_had_is_one_line(self, shell: InteractiveShell, options: str, line: str) -> None:
        error = shell.run_cell(f"%%dtscope profile {options}\npass").error_in_exec
        assert type(error) is UsageError
        assert str(error).startswith(line)
        assert "\n" not in str(error)
        assert not list(Path().glob("dtscope-runs/*/run.json"))

    def test_without_ipyparallel(self, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ipyparallel", None)
        error = shell.run_cell(f"{PROFILE}\npass").error_in_exec
        assert str(error) == "--cluster needs ipyparallel: pip install 'dtscope-jupyter[cluster]'"

    def test_a_directory_that_the_engines_dont_see(self, engines: Any, tmp_path: Path) -> None:
        assert len(engines.ids) == 2
        attempt = places.create(str(tmp_path / "here"), None, {"world_size": 2, "created_ns": 5})
        found = cluster.connect("two", None)
        world = cluster.ClusterWorld(found, attempt, "gloo")
        (tmp_path / "here").rename(tmp_path / "there")
        with pytest.raises(DtscopeError, match=r"engine 0 on .*: it does not see the run directory .*: give a --dir that all"):
            world.run(None, None)  # type: ignore[arg-type]
        world.close()

    def test_a_controller_that_is_gone(self, engines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = Path(os.environ["IPYTHONDIR"]) / "profile_default" / "security"
        assert len(engines.ids) == 2
        file = tmp_path / "client.json"
        file.write_text((home / "ipcontroller-two-client.json").read_text().replace('"registration": ', '"registration": 1'))
        monkeypatch.setattr(cluster.engines, "_CONNECT_S", 0.5)
        with pytest.raises(DtscopeError, match=r"cluster .* does not answer .*: does its controller run\?"):
            cluster.connect(str(file), None)


def test_an_engine_that_dies_is_the_failure(shell: InteractiveShell, engines: Any) -> None:
    pids = engines[:].apply_sync(os.getpid)

    def kill() -> None:
        until(lambda: logged("waiting"))
        os.kill(pids[1], signal.SIGKILL)

    threading.Thread(target=kill).start()
    error = shell.run_cell(f"{PROFILE}\n{TRAIN}print('waiting', flush=True)\ndist.barrier() if not rank else __import__('time').sleep(600)")
    assert str(error.error_in_exec) == "rank 1: engine 1 of cluster 'two' has died"
