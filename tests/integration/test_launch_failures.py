# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""How runs end that don't end well, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from ranks import Ranks

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import RankError, Warm, warm
from tests.waiting import WAIT_S, alive, children, until

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.launch import Job

GROUP = "import os, sys, time, torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
KERNEL = """
import os, sys, time
from dtscope_jupyter.launch import *
warm = Warm(); warm.start()
logs = tuple(os.path.join(sys.argv[1], f"{rank}.txt") for rank in range(2))
source = sys.argv[2]
job = start(Program(Cell(source, "cell")), Options(logs, (None, None), "r"), warm)
while not all(os.path.exists(log) and "ready" in open(log).read() for log in logs):
    time.sleep(0.01)
print(warm.pid, *job.pids, flush=True)
job.wait()
"""


CHILDREN = """
import multiprocessing
def endure():
    print("started", flush=True)
    time.sleep(600)
multiprocessing.get_context("fork").Process(target=endure).start()
loader = torch.utils.data.DataLoader(torch.arange(8), num_workers=1)
batches = iter(loader)
next(batches)
if os.fork() == 0:
    endure()
"""


class TestFirstFailure:
    @pytest.mark.parametrize("world_size", [2, 4])
    def test_an_exception_is_shown_once_and_the_others_are_ended(self, ranks: Ranks, world_size: int) -> None:
        job = ranks.run(GROUP + "if rank == 1:\n    raise KeyError('gone')\ndist.barrier()", world_size)
        assert job.failure is not None
        assert (job.failure.rank, job.failure.reason) == (1, "KeyError: 'gone'")
        rendered = "\n".join(RankError(job.failure)._render_traceback_())
        assert rendered.count("Traceback") == 2  # ours of the rank, and Python's own heading below it
        assert "Cell In[7], line 5, in <module>" in rendered
        assert not any(map(alive, job.pids))

    @pytest.mark.parametrize(
        ("end", "reason"),
        [
            ("os._exit(3)", "ended with exit code 3 before its program was complete"),
            ("os._exit(0)", "ended with exit code 0 before its program was complete"),
            ("os.kill(os.getpid(), 9)", "ended by SIGKILL (out of memory, or killed by hand)"),
            ("os.abort()", "ended by SIGABRT"),
            ("sys.exit(4)", "left by sys.exit with code 4"),
            ("sys.exit('no data')", "left by sys.exit with code 1 (no data)"),
        ],
    )
    def test_an_exit_is_one_line_with_the_last_of_the_log(self, ranks: Ranks, end: str, reason: str) -> None:
        job = ranks.run(GROUP + f"if rank == 1:\n    print('last words', flush=True)\n    {end}\ndist.barrier()")
        assert job.failure is not None
        assert (job.failure.rank, job.failure.reason) == (1, reason)
        if not end.startswith("sys.exit"):
            assert job.failure.log.splitlines()[-1] == "last words"
        assert str(RankError(job.failure)) == f"rank 1: {reason}"

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("raise ValueError('one\\ntwo')", "ValueError: one"),
            ("error = ValueError('one')\nerror.add_note('a note')\nraise error", "ValueError: one"),
            ("compile('x = (', 'f', 'exec')", "SyntaxError: '(' was never closed"),
            ("raise ValueError('x' * 100_000)", "ValueError: " + "x" * 988),
        ],
    )
    def test_the_reason_is_the_first_line_of_the_message(self, ranks: Ranks, source: str, reason: str) -> None:
        failure = ranks.run(source, world_size=1).failure
        assert failure is not None
        assert failure.reason == reason

    def test_of_a_stack_without_end_the_innermost_frames_are_shown(self, ranks: Ranks) -> None:
        deep = """
            import sys
            sys.setrecursionlimit(100_000)
            def down(n):
                1 / n
                down(n - 1)
            down({})
        """
        shallow, failure = ranks.run(deep.format(900), world_size=1).failure, ranks.run(deep.format(90_000), world_size=1).failure
        assert shallow is not None
        assert failure is not None
        assert (shallow.reason, failure.reason) == ("ZeroDivisionError: division by zero",) * 2
        assert "in <module>" in shallow.traceback
        assert failure.traceback.rstrip().endswith("ZeroDivisionError: division by zero")
        assert "[Previous line repeated 4996 more times]" in failure.traceback

    @pytest.mark.parametrize("highest", [1000, 1_000_000])
    def test_closing_every_descriptor_is_no_harm_or_said(self, ranks: Ranks, highest: int) -> None:
        job = ranks.run(f"import os\nos.closerange(3, {highest})\nprint('done')\nx = 1", pulled={"x": True})
        if highest == 1000:
            assert job.failure is None
            assert job.results() == {"x": [1, 1]}
            assert ranks.log(job, 0) == "done\n"
        else:
            assert job.failure is not None
            assert job.failure.reason == "ended with exit code 1 before its program was complete"
            said = "dtscope: the program closed file descriptors that are not its own, the pipe to the notebook among them"
            assert [line.partition(":")[0] for line in job.failure.log.splitlines()] == ["done", "dtscope"]
            assert job.failure.log.splitlines()[1].startswith(said)

    def test_sys_exit_0_is_success(self, ranks: Ranks) -> None:
        assert ranks.run("import sys\nsys.exit()").failure is None

    def test_an_abort_after_the_end_is_noted_and_no_failure(self, ranks: Ranks) -> None:
        job = ranks.run("import atexit, os\nif os.environ['RANK'] == '0':\n    atexit.register(os.abort)\nx = 1", pulled={"x": False})
        assert job.failure is None
        assert job.notes == ["rank 0 ended by SIGABRT after its program was complete: the run counts as good"]
        assert job.results() == {"x": 1}


class TestInterrupt:
    def test_ranks_that_we_end_while_they_leave_are_no_news(self, ranks: Ranks) -> None:
        job = ranks.begin("import atexit, time\natexit.register(time.sleep, 600)\nprint('leaving', flush=True)")
        until(lambda: all("leaving" in ranks.log(job, rank) for rank in range(2)), "they leave")
        until(lambda: not job.unfinished(), "their programs are over")
        job.interrupt()
        job.interrupt()
        assert job.wait(WAIT_S)
        assert (job.interrupted, job.failure, job.notes) == (True, None, [])

    def test_python_code_is_ended_by_sigint(self, ranks: Ranks) -> None:
        job = self._sleeping(ranks, "try:\n    time.sleep(600)\nfinally:\n    print('cleaned', flush=True)")
        job.interrupt()
        assert job.wait(WAIT_S)
        assert job.interrupted
        assert job.failure is None
        assert "cleaned" in ranks.log(job, 0)
        assert not any(map(alive, job.pids))

    def test_a_collective_is_ended_and_a_second_interrupt_hastens(self, ranks: Ranks) -> None:
        job = self._sleeping(ranks, "dist.recv(torch.ones(1))")
        job.interrupt()
        job.interrupt()
        assert job.wait(WAIT_S)
        assert job.failure is None
        assert not any(map(alive, job.pids))

    def test_a_rank_that_ignores_signals_is_killed(self, ranks: Ranks) -> None:
        deaf = "import signal\nfor n in (2, 15):\n    signal.signal(n, signal.SIG_IGN)\nprint('set', flush=True)\ntime.sleep(600)"
        job = self._sleeping(ranks, deaf)
        until(lambda: all("set" in ranks.log(job, rank) for rank in range(2)), "ranks are deaf")
        job.stop()
        assert job.wait(WAIT_S)
        assert not any(map(alive, job.pids))

    def test_before_the_first_line_it_is_no_traceback_of_ours(self, ranks: Ranks) -> None:
        for pause in (0.0, 0.01, 0.03, 0.1, 0.3):
            job = ranks.begin("import time\ntime.sleep(600)")
            until(lambda: len(job.pids) == 2, "ranks")  # noqa: B023 - called at once
            time.sleep(pause)
            job.interrupt()
            assert job.wait(WAIT_S)
            assert (job.interrupted, job.failure) == (True, None)
            assert [ranks.log(job, rank) for rank in range(2)] == ["", ""]

    def test_a_time_limit_names_a_rank_that_was_late(self, ranks: Ranks) -> None:
        job = ranks.run("import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(600)", timeout=3.0)
        assert job.failure is not None
        assert (job.failure.rank, job.failure.reason) == (1, "was not done after --timeout 3 s")

    def test_a_time_limit_names_all_ranks_that_were_late(self, ranks: Ranks) -> None:
        job = ranks.run("import time\ntime.sleep(600)", timeout=1.0)
        assert job.failure is not None
        assert (job.failure.rank, job.failure.reason) == (0, "was not done after --timeout 1 s, nor was rank 1")

    def _sleeping(self, ranks: Ranks, source: str) -> Job:
        job = ranks.begin(GROUP + "print('ready', flush=True)\n" + source)
        until(lambda: all("ready" in ranks.log(job, rank) for rank in range(2)), "ranks are ready")
        return job


def _left(temporary: Path) -> list[str]:
    """What lies in a folder for temporary files, but what torch keeps itself."""
    return [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor_")]


class TestKernelDeath:
    @pytest.mark.parametrize(
        "source",
        [
            "print('ready', flush=True)\nimport time\ntime.sleep(600)",
            GROUP + "print('ready', flush=True)\ndist.recv(torch.ones(1))",
            "import os, torch\nif os.fork() == 0:\n    import time\n    time.sleep(600)\nprint('ready', flush=True)\nos.wait()",
            "import os, time, torch\n" + CHILDREN + "print('ready', flush=True)\ntime.sleep(600)",
        ],
        ids=["sleeping", "in a collective", "with a child", "with loader workers"],
    )
    def test_a_killed_kernel_leaves_no_process_and_no_file(self, tmp_path: Path, source: str) -> None:
        temporary, logs = tmp_path / "tmp", tmp_path / "logs"
        temporary.mkdir()
        logs.mkdir()
        environment = os.environ | {"TMPDIR": str(temporary)}
        kernel = subprocess.Popen([sys.executable, "-c", KERNEL, str(logs), source], stdout=subprocess.PIPE, text=True, env=environment)
        assert kernel.stdout is not None
        pids = [int(pid) for pid in kernel.stdout.readline().split()]
        family = [child for pid in pids for child in (pid, *children(pid))]
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
        kernel.stdout.close()
        until(lambda: not any(map(alive, family)), "every process is gone")
        assert _left(temporary) == []

    def test_a_kernel_that_is_killed_at_once_leaves_no_warm_process(self, tmp_path: Path) -> None:
        """Which would else find itself without a parent when it first looks, and import torch to its end: here that has none."""
        (tmp_path / "torch.py").write_text("import time\ntime.sleep(600)\n")
        source = "import os\nfrom dtscope_jupyter.launch import Warm\nwarm = Warm()\nwarm.start()\nprint(warm.pid, flush=True)\n"
        source += "os.kill(os.getpid(), 9)"
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        kernel = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=environment, check=False)
        assert kernel.returncode == -signal.SIGKILL
        until(lambda: not alive(int(kernel.stdout)), "the warm process is gone")

    def test_a_warm_process_that_is_killed_is_replaced(self, ranks: Ranks) -> None:
        ranks.warm.wait_ready()
        before = ranks.warm.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        until(lambda: not alive(before), "it is gone")
        assert ranks.value("x = 1", "x") == [1, 1]
        assert ranks.warm.pid != before

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
    def test_ranks_end_with_the_warm_process_and_so_do_their_children(self, ranks: Ranks, number: signal.Signals) -> None:
        job = TestInterrupt()._sleeping(ranks, CHILDREN + "time.sleep(600)")
        until(lambda: all(ranks.log(job, rank).count("started") == 2 for rank in range(2)), "they have children")
        family = [child for pid in job.pids for child in (pid, *children(pid))]
        assert len(family) == 8
        before = ranks.warm.pid
        assert before is not None
        os.kill(before, number)
        assert job.wait(WAIT_S)
        assert job.failure is not None
        assert job.failure.reason == (
            f"ended with the warm process that ranks are forked from, which ended by {number.name}; the next profile starts a new one"
        )
        until(lambda: not any(map(alive, family)), "every process is gone")
        assert ranks.value("x = 1", "x") == [1, 1]
        assert ranks.warm.pid not in (None, before)

    def test_children_of_kept_ranks_end_after_the_warm_process(self, ranks: Ranks) -> None:
        job = ranks.run("import os, time\nif os.fork() == 0:\n    time.sleep(600)", keep=True)
        assert job.world is not None
        family = [child for pid in job.pids for child in (pid, *children(pid))]
        assert len(family) == 4
        assert ranks.warm.pid is not None
        os.kill(ranks.warm.pid, signal.SIGKILL)
        until(job.world.gone, "that is seen")
        job.world.close()
        until(lambda: not any(map(alive, family)), "every process is gone")

    def test_a_killed_process_group_of_the_kernel_leaves_no_process(self, tmp_path: Path) -> None:
        """As Jupyter kills a kernel."""
        source = "import os, torch\nif os.fork() == 0:\n    import time\n    time.sleep(600)\nprint('ready', flush=True)\nos.wait()"
        kernel = subprocess.Popen(
            [sys.executable, "-c", KERNEL, str(tmp_path), source], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert kernel.stdout is not None
        pids = [int(pid) for pid in kernel.stdout.readline().split()]
        family = [child for pid in pids for child in (pid, *children(pid))]
        os.killpg(kernel.pid, signal.SIGKILL)
        kernel.wait()
        kernel.stdout.close()
        until(lambda: not any(map(alive, family)), "every process is gone")

    def test_ranks_of_a_warm_process_that_is_stopped_can_be_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(warm, "_ANSWER_S", 0.5)
        stopped = Warm()
        job = TestInterrupt()._sleeping(Ranks(stopped, tmp_path), "time.sleep(600)")
        assert stopped.pid is not None
        os.kill(stopped.pid, signal.SIGSTOP)
        job.interrupt()
        assert job.wait(WAIT_S)
        until(lambda: not any(map(alive, job.pids)), "every rank is gone")
        stopped.stop()

    def test_a_second_interrupt_ends_a_warm_process_that_does_not_get_ready(self, tmp_path: Path) -> None:
        stuck = Warm()
        stuck.start()
        assert stuck.pid is not None
        os.kill(stuck.pid, signal.SIGSTOP)
        job = Ranks(stuck, tmp_path).begin("x = 1")
        until(job._warm._lock.locked, "the job waits for it")
        job.interrupt()
        job.interrupt()
        with pytest.raises(DtscopeError, match="warm process that ranks are forked from has ended"):
            job.wait(WAIT_S)
        stuck.stop()
