# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A rank's life: remote control, attaching, failures, faults, and jobs that record themselves."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import agent_ranks
import pyarrow as pa
import pytest

from dtscope_jupyter import rundir, schema
from dtscope_jupyter.agent.control import ask
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.store import BlockReader
from tests.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

LOOP = """
model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(16, 8)
def step():
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
PAUSE = """
def pause(times):
    for _ in range(times):  # and not at once, so that on a busy machine other threads get their turn as often
        time.sleep(0.01)
"""
UNTIL = """
stop = pathlib.Path(STOP)
for number in range(100_000):
    step()
    time.sleep(0.005)
    flag = torch.tensor(float(stop.exists()))
    dist.broadcast(flag, 0)
    if flag:
        break
value = number
"""
STUCK = """
step()
if rank == 1:
    while not pathlib.Path(STOP).exists():
        time.sleep(0.05)
dist.all_reduce(torch.ones(3))
value = 0
"""


def _table(folder: Path, name: str) -> Any:
    return pa.Table.from_batches(list(BlockReader(folder, name).batches()), schema.TABLES[name].arrow).to_pandas()


def _ask(folder: Path, **request: Any) -> dict[str, Any]:
    return ask(folder, request, timeout=20)


@pytest.fixture
def running(ranks: Ranks, tmp_path: Path) -> Any:
    """Starts a program, hands out rank 0's folder once it listens, and ends it."""
    jobs = []
    stop = tmp_path / "stop"

    def begin(source: str, **config: Any) -> Path:
        program = agent_ranks.PRELUDE.format(folder=str(tmp_path / "run"), config=config) + source.replace("STOP", repr(str(stop)))
        jobs.append(ranks.begin(program + agent_ranks.EPILOGUE, 2))
        until((tmp_path / "run" / "rank-0000" / "control.sock").exists)
        return tmp_path / "run" / "rank-0000"

    yield begin
    stop.touch()
    for job in jobs:
        assert job.wait(WAIT_S)
        assert job.failure is None, job.failure


def test_remote_control(running: Any) -> None:
    folder = running(LOOP + UNTIL)
    assert stat.S_IMODE((folder / "control.sock").stat().st_mode) == 0o600
    first = until(lambda: (said := _ask(folder, command="status"))["step"] > 3 and said)
    assert first["ok"]
    assert first["recording"]
    assert all(first["collectors"].values())
    assert _ask(folder, command="budget", value=0.05)["budget"] == 0.05
    assert not _ask(folder, command="budget", value=7)["ok"]
    assert "choose from" in _ask(folder, command="dance")["error"]
    assert _ask(folder, command="profile", steps=2)["steps"] == 2
    trace = until(lambda: list(folder.glob("trace-*.json.gz")))[0]
    notes = until(lambda: (rows := _table(folder, "notes"))[rows["kind"] == "window"].to_dict("records"))
    assert notes[0]["name"] == trace.name
    until(lambda: int(trace.name[6:12]) in (rows := _table(folder, "steps"))[rows["disturbed"]]["step"].tolist())


def test_attaching_and_detaching(running: Any) -> None:
    folder = running(LOOP + UNTIL, record=False)
    assert not _ask(folder, command="status")["recording"]
    assert not (folder / "steps.arrows").exists()
    assert _ask(folder, command="attach")["recording"]
    until(lambda: len(_table(folder, "steps")) > 5 and len(_table(folder, "collectives").dropna(subset="bucket")) > 5)
    assert not _ask(folder, command="detach")["recording"]
    count = len(_table(folder, "steps"))
    time.sleep(0.5)
    assert len(_table(folder, "steps")) == count
    _ask(folder, command="attach")
    until(lambda: len(_table(folder, "steps")) > count)
    assert _table(folder, "steps")["step"].is_unique


def test_recording_that_goes_on_has_each_parameter_again(ranks: Ranks, tmp_path: Path) -> None:
    loop = """
def train(steps):
    for _ in range(steps):
        step()
train(10)
armed.stop()
train(5)
armed.start()
train(10)
value = 0
"""
    rows = agent_ranks.run(ranks, LOOP + loop, 2, folder=tmp_path).of("gradients", 0)
    for steps in (rows[rows["step"] < 10], rows[rows["step"] >= 10]):
        whole = steps.dropna(subset=["ready_ns", "local_norm", "synced_norm"])
        assert set(whole["parameter_id"]) == {0, 1, 2, 3}
        assert len(whole) >= 4 * 5


def test_a_stuck_rank_answers(running: Any) -> None:
    folder = running(LOOP + STUCK)
    until(lambda: (rows := _table(folder, "collectives"))[rows["state"] == "scheduled"].to_dict("records"))
    files = _ask(folder, command="flight_recorder")["files"]
    assert json.loads((folder / files[0]).read_text())["entries"]
    assert (folder / files[1]).stat().st_size > 0
    stacks = (folder / _ask(folder, command="stacks")["file"]).read_text()
    assert "all_reduce" in stacks
    assert "in <module>" in stacks


def test_stacks_by_signal_where_nobody_answers(running: Any) -> None:
    folder = running(LOOP + STUCK)
    until(lambda: "stack_signal" in rundir.read_json(folder / "rank.json"))
    identity = rundir.read_json(folder / "rank.json")
    os.kill(identity["pid"], identity["stack_signal"])
    until(lambda: "Thread" in (folder / "stacks-signal.txt").read_text())


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(DtscopeError, match="no live rank"):
        ask(tmp_path, {"command": "status"})


def test_what_was_recorded_survives_an_exception(ranks: Ranks, tmp_path: Path) -> None:
    program = agent_ranks.PRELUDE.format(folder=str(tmp_path), config={}) + LOOP + "for _ in range(7):\n    step()\nraise KeyError('x')\n"
    job = ranks.run(program, 2)
    assert job.failure is not None
    assert len(_table(tmp_path / "rank-0000", "steps")) == 7


def test_a_killed_rank_loses_200_ms_at_most(ranks: Ranks, tmp_path: Path) -> None:
    kill = PAUSE + "for _ in range(7):\n    step()\npause(40 if rank else 3000)\nos.kill(os.getpid(), 9)\n"
    ranks.run(agent_ranks.PRELUDE.format(folder=str(tmp_path), config={}) + LOOP + kill, 2)
    assert len(_table(tmp_path / "rank-0001", "steps")) == 7


def test_a_collector_that_fails_goes_off_and_says_so(ranks: Ranks, tmp_path: Path) -> None:
    broken = "armed.gradients._measure = None\nfor _ in range(6):\n    step()\nvalue = armed.status()['collectors']\n"
    recorded = agent_ranks.run(ranks, LOOP + broken, 2, folder=tmp_path)
    assert recorded.values[0]["gradients"] is False
    assert recorded.values[0]["collectives"] is True
    notes = recorded.of("notes", 0)
    assert notes[notes["kind"] == "collector"]["name"].tolist() == ["gradients"]
    assert len(recorded.of("steps", 0)) == 6


def test_the_disk_allowance_holds(ranks: Ranks, tmp_path: Path) -> None:
    recorded = agent_ranks.run(ranks, LOOP + "for _ in range(600):\n    step()\nvalue = 0\n", 2, folder=tmp_path, disk=150_000, budget=1.0)
    size = sum(path.stat().st_size for path in (tmp_path / "rank-0000").glob("*.arrows"))
    assert size < 250_000
    thinned = recorded.of("notes", 0)
    assert (thinned["kind"] == "thinned").any()


FAULTS = [
    {"fault": "straggler", "rank": 1, "ms": 40, "step": 2},
    {"fault": "host_stall", "rank": 1, "ms": 40, "step": 2},
    {"fault": "slow_link", "rank": 1, "ms": 40, "step": 2},
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["fault"])
def test_rehearsed_delays(ranks: Ranks, tmp_path: Path, fault: dict[str, Any]) -> None:
    recorded = agent_ranks.run(ranks, LOOP + "for _ in range(8):\n    step()\nvalue = 0\n", 2, folder=tmp_path, faults=(fault,))
    steps = recorded.of("steps", 0)
    length = (steps["end_ns"] - steps["start_ns"]) / 1e6
    assert length[3:7].median() > 35
    notes = recorded.table("notes")
    told = notes[notes["kind"] == "fault"]
    assert set(told["rank"]) == ({0, 1} if fault["fault"] == "slow_link" else {1})
    assert (told["name"] == fault["fault"]).all()


def test_a_rehearsed_nan_is_counted_where_it_was_made(ranks: Ranks, tmp_path: Path) -> None:
    fault = {"fault": "nan", "rank": 1, "step": 3, "steps": 1}
    recorded = agent_ranks.run(ranks, LOOP + "for _ in range(5):\n    step()\nvalue = 0\n", 2, folder=tmp_path, faults=(fault,), budget=1.0)
    counted = [recorded.of("steps", rank).set_index("step")["nonfinite"][3] for rank in range(2)]
    assert counted == [0, 1]
    assert recorded.of("steps", 0)["synced_norm"].isna().tolist()[3] or not recorded.of("steps", 0)["synced_norm"][3] < float("inf")


def test_rehearsed_values_differ_on_the_rank(ranks: Ranks, tmp_path: Path) -> None:
    fault = {"fault": "desync", "rank": 1, "step": 3}
    recorded = agent_ranks.run(ranks, LOOP + "for _ in range(5):\n    step()\nvalue = 0\n", 2, folder=tmp_path, faults=(fault,))
    one, other = (recorded.of("steps", rank)["synced_norm"] for rank in range(2))
    assert (one[:3] == other[:3]).all()
    assert (one[3:] != other[3:]).all()


def test_rehearsed_copies(ranks: Ranks, tmp_path: Path) -> None:
    fault = {"fault": "copy", "rank": 1, "ms": 5, "step": 2}
    recorded = agent_ranks.run(ranks, LOOP + "for _ in range(5):\n    step()\nvalue = 0\n", 2, folder=tmp_path, faults=(fault,))
    copies = recorded.table("host")
    assert set(copies[copies["kind"] == "copy"]["rank"]) == {1}
    rows = recorded.table("collectives")
    assert set(rows[rows["contiguous"] == False]["rank"]) == {1}  # noqa: E712


SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
count = os.environ["TORCHELASTIC_RESTART_COUNT"]  # on gloo a restart over torchrun's own store does not connect
place = dict(init_method=f"file://{__file__}.{count}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
dist.init_process_group("gloo", **place)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8, num_workers=1)
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
if int(count) < int(sys.argv[1]):
    sys.exit(3)
dist.destroy_process_group()
"""


WATCHED = SCRIPT.replace("loader =", "import dtscope_jupyter as dts\ndts.watch(model, optimizer)\ndts.watch(model)\nloader =")
WATCHED_EARLY = SCRIPT.replace("dist.init", "import dtscope_jupyter as dts\ndts.watch(torch.nn.Linear(2, 2))\ndist.init")
ALONE = """
import os
import torch
from torch.distributed import destroy_process_group, init_process_group
import dtscope_jupyter as dts
model = torch.nn.Linear(2, 1)
dts.watch(model, torch.optim.SGD(model.parameters()))
dts.watch(model)
if "RANK" in os.environ:
    init_process_group("gloo", init_method=f"file://{__file__}.store", rank=0, world_size=1)
    destroy_process_group()
print("trained")
"""


def _torchrun(tmp_path: Path, *, restarts: int, **variables: str) -> Path:
    """Runs the script under torchrun with the line of the wheel's .pth file; returns the folder of runs."""
    return _watched(tmp_path, SCRIPT, restarts=restarts, **variables)[0]


def _watched(tmp_path: Path, script: str, *, restarts: int = 0, **variables: str) -> tuple[Path, str]:
    """The folder of runs, and what was said."""
    site = tmp_path / "site"
    site.mkdir()
    line = "import os; os.environ.get('DTRAINSCOPE_ENABLE') and __import__('dtscope_jupyter.agent.autostart')"
    (site / "sitecustomize.py").write_text(line)
    (tmp_path / "train.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(site), "DTRAINSCOPE_LOG_DIR": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--max-restarts={restarts}", "--standalone"]
    done = subprocess.run(
        [*command, str(tmp_path / "train.py"), str(restarts)], env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "runs", done.stderr


def test_an_unchanged_script_records_itself_and_its_restarts(tmp_path: Path) -> None:
    (run,) = _torchrun(tmp_path, restarts=1, DTRAINSCOPE_ENABLE="1", DTRAINSCOPE_COLLECT="steps,collectives").iterdir()
    attempts = rundir.attempts(run)
    assert [attempt.number for attempt in attempts] == [0, 1]
    for attempt in attempts:
        assert attempt.ranks() == [0, 1]
        assert attempt.meta["world_size"] == 2
        assert [len(_table(attempt.rank_path(rank), "steps")) for rank in range(2)] == [8, 8]
        assert not (attempt.rank_path(0) / "gradients.arrows").exists()


@pytest.mark.parametrize("script", [WATCHED, WATCHED_EARLY], ids=["after the group", "before the group"])
def test_a_script_that_names_its_model_records_itself_and_says_where(tmp_path: Path, script: str) -> None:
    runs, said = _watched(tmp_path, script)
    (run,) = runs.iterdir()
    (attempt,) = rundir.attempts(run)
    assert attempt.ranks() == [0, 1]
    for rank in range(2):
        assert len(_table(attempt.rank_path(rank), "steps")) == 8
        assert len(_table(attempt.rank_path(rank), "collectives").dropna(subset="bucket")) >= 8
    assert said.count(f"records to {run};") == 1
    assert "watch recorded nothing" not in said


@pytest.mark.parametrize(("rank", "line"), [(None, "RANK is not set"), ("0", "no init_process_group came after it")])
def test_a_model_named_where_nothing_can_be_recorded_is_one_line(tmp_path: Path, rank: str | None, line: str) -> None:
    (tmp_path / "train.py").write_text(ALONE)
    environment = {name: value for name, value in os.environ.items() if name != "RANK" and not name.startswith("DTRAINSCOPE_")}
    command = [sys.executable, str(tmp_path / "train.py")]
    environment |= {"RANK": rank} if rank is not None else {}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert [line in text for text in done.stderr.splitlines() if "dtscope" in text] == [True]
    assert not (tmp_path / "dtscope-runs").exists()


def test_an_armed_but_idle_script_records_nothing(tmp_path: Path) -> None:
    (run,) = _torchrun(tmp_path, restarts=0, DTRAINSCOPE_ENABLE="attach").iterdir()
    assert rundir.attempts(run)[0].ranks() == [0, 1]
    assert not list(run.rglob("*.arrows"))


def test_a_wrong_variable_is_one_line_and_the_job_goes_on(tmp_path: Path) -> None:
    runs = _torchrun(tmp_path, restarts=0, DTRAINSCOPE_ENABLE="1", DTRAINSCOPE_BUDGET="much")
    assert not list(runs.rglob("*.arrows"))


def test_a_stopped_rank_can_be_told_by_its_heartbeat(running: Any) -> None:
    folder = running(LOOP + UNTIL)
    identity = rundir.read_json(folder / "rank.json")
    before = (folder / "rank.json").stat().st_mtime_ns
    until(lambda: (folder / "rank.json").stat().st_mtime_ns > before)
    os.kill(identity["pid"], signal.SIGSTOP)
    try:
        time.sleep(0.3)
        stopped = (folder / "rank.json").stat().st_mtime_ns
        time.sleep(0.5)
        assert (folder / "rank.json").stat().st_mtime_ns == stopped
    finally:
        os.kill(identity["pid"], signal.SIGCONT)
    until(lambda: (folder / "rank.json").stat().st_mtime_ns > stopped)


def test_pictures_of_gradients_on_request(ranks: Ranks, tmp_path: Path) -> None:
    collect = frozenset({"steps", "gradients", "gradient_tiles"})
    check = "value = {}\nfor n in range(8):\n    step()\n    value[n] = [p.grad.abs().max().item() for p in model.parameters()]\n"
    recorded = agent_ranks.run(ranks, LOOP + check, 2, folder=tmp_path, collect=collect, budget=1.0)
    tiles = recorded.of("gradient_tiles", 0)
    assert set(tiles["parameter_id"]) == {0, 1, 2, 3}
    for row in tiles.itertuples():
        assert len(row.values) == row.height * row.width
        assert max(row.values) == pytest.approx(recorded.values[0][row.step][row.parameter_id])
        assert len(row.histogram) == 18


def test_memory_stays_flat(ranks: Ranks, tmp_path: Path) -> None:
    """What 3000 steps leave in Python's memory, the first 1000 being warm-up."""
    source = """
    import tracemalloc
    for number in range(3000):
        if number == 1000:
            pause(30)
            tracemalloc.start(1)
            before = tracemalloc.get_traced_memory()[0]
        step()
    pause(30)
    value = tracemalloc.get_traced_memory()[0] - before
    """
    grown = agent_ranks.run(ranks, LOOP + PAUSE + textwrap.dedent(source), 2, folder=tmp_path).values
    assert max(grown) < 2_000_000
