# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""%%dtscope profile from a real shell to real ranks and back."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from dtscope_jupyter import session
from dtscope_jupyter.launch import Interrupted, RankError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from IPython.core.interactiveshell import InteractiveShell

TRAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 16) * (1 + dist.get_rank())).square().mean()
    loss.backward()
    optimizer.step()
print("trained")
"""


def interrupt_when(condition: Callable[[], object]) -> None:
    def act() -> None:
        until(condition)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=act).start()


def logged(word: str) -> Callable[[], bool]:
    return lambda: all(any(word in log.read_text() for log in Path().glob(f"dtscope-runs/*/rank-{rank:04d}/log.txt")) for rank in range(2))


class TestRun:
    def test_it_records_reports_and_brings_values_back(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        shell.user_ns["bias"] = 2
        line = "%%dtscope profile -n 2 --name first --push bias --pull step,bias:all"
        assert shell.run_cell(f"{line}\n{TRAIN}bias += dist.get_rank()").success
        assert (shell.user_ns["step"], shell.user_ns["bias"]) == (7, [2, 3])
        output = capsys.readouterr().out
        assert output.startswith("trained\n")
        assert "first: 2 ranks" in output
        (run,) = Path("dtscope-runs").glob("*-first")
        assert Path("dtscope-runs/.gitignore").read_text() == "*\n"
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in run.rglob("*") if file.is_file())
        steps = session.current().run.table("steps")
        assert sorted(zip(steps["rank"], steps["step"], strict=True)) == [(rank, step) for rank in range(2) for step in range(8)]

    def test_a_directory_that_holds_a_run_gets_a_new_attempt(self, shell: InteractiveShell, tmp_path: Path) -> None:
        for _ in range(2):
            assert shell.run_cell("%%dtscope profile -n 1 --dir 'my run'\nx = 1").success
        assert (tmp_path / "my run" / "run.json").exists()
        assert (tmp_path / "my run" / "attempt-1" / "rank-0000" / "log.txt").exists()
        assert not (tmp_path / "dtscope-runs").exists()

    def test_output_is_shown_as_it_is(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        cell = "import sys\nfor n in range(3):\n    print(f'\\r{n} é', end='', file=sys.stderr, flush=True)"
        assert shell.run_cell(f"%%dtscope profile -n 2\n{cell}").success
        assert capsys.readouterr().out.startswith("\r0 é\r1 é\r2 é\n")

    def test_progress_bars_are_shown(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        cell = (
            "from tqdm.auto import tqdm\nfrom rich.console import Console\nfrom rich.progress import track\n"
            "for _ in tqdm(range(3), desc='epochs', mininterval=0):\n    pass\n"
            "for _ in track(range(3), description='batches'):\n    pass\nConsole().print('[bold]trained[/bold]')"
        )
        assert shell.run_cell(f"%%dtscope profile -n 2\n{cell}").success
        out = capsys.readouterr().out
        bars = out.split("\n", 1)[0].split("\r")
        assert bars[1].startswith("epochs:   0%|")
        assert bars[-1].startswith("epochs: 100%|")
        assert "batches" in out
        assert "100%" in out.partition("batches")[2]
        assert out.partition("batches")[2].splitlines()[1] == "trained"

    def test_a_huge_value_is_pushed_with_a_warning(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        shell.user_ns["large"] = b"x" * (64 * 2**20)
        assert shell.run_cell("%%dtscope profile -n 2 --push large --pull size:all\nsize = len(large)").success
        assert shell.user_ns["size"] == [64 * 2**20] * 2
        assert "--push copies 64 MiB to each of 2 ranks: large (64 MiB); loading it inside the cell is cheaper" in capsys.readouterr().err

    def test_only_what_is_asked_for_is_collected(self, shell: InteractiveShell) -> None:
        assert shell.run_cell(f"%%dtscope profile -n 2 --collect steps\n{TRAIN}").success
        assert len(session.current().run.table("steps")) == 16
        assert len(session.current().run.table("gradients")) == 0


class TestFailure:
    def test_a_ranks_error_is_the_cells(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        cell = f"%%dtscope profile -n 2\n{TRAIN}\nif dist.get_rank() == 1:\n    raise ValueError('no such luck')\ndist.barrier()"
        error = shell.run_cell(cell).error_in_exec
        assert isinstance(error, RankError)
        assert str(error) == "rank 1: ValueError: no such luck"
        output = capsys.readouterr().out
        assert output.count("ValueError: no such luck") == 3  # in the report's first line, the traceback and the cell's error
        line = 1 + cell.splitlines().index("    raise ValueError('no such luck')")
        assert f"Cell In[{shell.execution_count}], line {line}" in output
        assert "interactiveshell.py" not in output
        assert len(session.current().run.table("steps")) == 16

    def test_a_name_that_only_the_notebook_has_is_hinted_at(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        shell.user_ns["rate"] = 0.1
        assert shell.run_cell("%%dtscope profile -n 1\nprint(rate)").error_in_exec is not None
        remedy = "ranks are processes of their own and know only the cell: give it to them with --push rate\n"
        assert capsys.readouterr().err.endswith(f"dtscope: the notebook has a rate, but {remedy}")

    def test_a_pulled_name_that_was_never_set_is_one_line_and_the_rest_comes(self, shell: InteractiveShell) -> None:
        error = shell.run_cell("%%dtscope profile -n 1 --pull here,absent\nhere = 5").error_in_exec
        assert type(error) is UsageError
        assert str(error) == "--pull absent: rank 0 has no such value to give: the cell never set it"
        assert shell.user_ns["here"] == 5

    def test_a_scalar_that_is_no_number_is_named(self, shell: InteractiveShell) -> None:
        cell = "%%dtscope profile -n 1\nimport dtscope_jupyter as dts\ndts.log(loss='low')"
        said = "log(loss=...): could not convert string to float: 'low'; log one number, such as loss=loss.item()"
        assert str(shell.run_cell(cell).error_in_exec) == f"rank 0: dtscope_jupyter.errors.DtscopeError: {said}"

    def test_a_name_that_the_locale_has_no_characters_for_is_one_line(self, tmp_path: Path) -> None:
        environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "IPYTHONDIR": str(tmp_path / "ipython")}
        cells = "%load_ext dtscope_jupyter\n%%dtscope profile -n 1 --name \\u00fcber\nx = 1"
        load, cell = cells.split("\n", 1)
        source = "from IPython.core.interactiveshell import InteractiveShell as S\nshell = S.instance()\n"
        source += f"shell.run_cell('{load}')\nerror = shell.run_cell({cell!r}.encode().decode('unicode_escape')).error_in_exec\n"
        source += "print(type(error).__name__, ascii(str(error)))"
        ran = subprocess.run(
            [sys.executable, "-c", source], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        last = ran.stdout.splitlines()[-1]
        assert last.startswith("UsageError")
        assert "is no character of this process' locale (ascii); use others, or set PYTHONUTF8=1" in last
        assert not list(tmp_path.glob("dtscope-runs/*/run.json"))

    def test_a_run_directory_that_is_removed_meanwhile_is_one_line_and_values_come(
        self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cell = "import pathlib, shutil\n[run] = pathlib.Path('dtscope-runs').glob('*-run')\nshutil.rmtree(run)\nkept = 5"
        error = shell.run_cell(f"%%dtscope profile -n 1 --pull kept\n{cell}").error_in_exec
        assert type(error) is UsageError
        assert re.fullmatch(r"the run directory dtscope-runs/\S+-run was removed while its ranks ran: .*; run the cell again", str(error))
        assert shell.user_ns["kept"] == 5
        assert "could not be written" not in capsys.readouterr().err
        assert session.current().running is None

    def test_an_interrupt_ends_the_ranks_and_the_report_still_comes(
        self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        interrupt_when(logged("waiting"))
        cell = TRAIN + "import time\nprint('waiting', flush=True)\ntime.sleep(600)"
        error = shell.run_cell(f"%%dtscope profile -n 2\n{cell}").error_in_exec
        assert isinstance(error, Interrupted)
        assert "run: 2 ranks" in capsys.readouterr().out
        assert session.current().running is None
        assert len(session.current().run.table("steps")) == 16

    def test_a_time_limit_is_a_failure(self, shell: InteractiveShell) -> None:
        error = shell.run_cell("%%dtscope profile -n 1 --timeout 0.5\nimport time\ntime.sleep(600)").error_in_exec
        assert str(error) == "rank 0: was not done after --timeout 0.5 s"


class TestBackground:
    def test_the_cell_returns_at_once_and_stop_ends_it(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        cell = "import time\nprint('waiting', flush=True)\ntime.sleep(600)"
        assert shell.run_cell(f"%%dtscope profile -n 2 --background\n{cell}").success
        profile = session.current().running
        assert profile is not None
        until(logged("waiting"))
        capsys.readouterr()
        shell.run_cell("%dtscope status")
        assert f"2 ranks (pids {', '.join(map(str, profile.job.pids))})" in capsys.readouterr().out
        session.current()._run = None  # as where it is the first
        assert session.current().run.path == profile.attempt.run
        second = shell.run_cell("%%dtscope profile -n 2\nx = 1").error_in_exec
        assert "a profile runs already" in str(second)
        assert shell.run_cell("%dtscope stop").success
        until(lambda: profile.run is not None)
        assert session.current().running is None
        assert len(repr(shell.run_cell("%dtscope runs").result).splitlines()) == 1

    def test_values_come_when_it_ends(self, shell: InteractiveShell) -> None:
        assert shell.run_cell("%%dtscope profile -n 2 --background --pull late\nlate = 11").success
        until(lambda: shell.user_ns.get("late") == 11)


class TestKeep:
    def test_the_next_cell_finds_variables_and_records_its_own_run(self, shell: InteractiveShell) -> None:
        assert shell.run_cell(f"%%dtscope profile -n 2 --keep\n{TRAIN}").success
        error = shell.run_cell("%%dtscope profile -n 3\nx = 1").error_in_exec
        assert "2 ranks were kept" in str(error)
        again = TRAIN[TRAIN.index("for step") :]
        assert shell.run_cell(f"%%dtscope profile --pull total\n{again}total = dist.get_world_size() + step").success
        assert shell.user_ns["total"] == 9
        assert len(session.current().run.table("steps")) == 16
        assert session.current().kept is None

    def test_stop_ends_kept_ranks(self, shell: InteractiveShell) -> None:
        assert shell.run_cell("%%dtscope profile -n 2 --keep\nx = 1").success
        kept = session.current().kept
        assert kept is not None
        assert shell.run_cell("%dtscope stop").success
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in kept.pids))

    def test_kept_ranks_that_died_are_replaced(self, shell: InteractiveShell) -> None:
        assert shell.run_cell("%%dtscope profile -n 2 --keep\nx = 1").success
        kept = session.current().kept
        assert kept is not None
        os.kill(kept.pids[1], signal.SIGKILL)
        until(kept.gone)
        assert shell.run_cell("%%dtscope profile --pull y\ny = 2").success
        assert shell.user_ns["y"] == 2


class TestAttach:
    def test_a_run_directory_a_folder_of_runs_and_a_pid_become_the_current_run(self, shell: InteractiveShell) -> None:
        assert shell.run_cell(f"%%dtscope profile -n 2 --keep\n{TRAIN}").success
        cell = "import time\nprint('waiting', flush=True)\ntime.sleep(600)"
        assert shell.run_cell(f"%%dtscope profile --background --name live\n{cell}").success
        profile = session.current().running
        assert profile is not None
        until(logged("waiting"))
        for target in (str(profile.job.pids[1]), "dtscope-runs", str(profile.attempt.path)):
            assert shell.run_cell(f"%dtscope attach {target}").success
            assert session.current().run.path == profile.attempt.run
        shell.run_cell("%dtscope stop")
        until(lambda: profile.run is not None)


class TestUnload:
    def test_unloading_ends_what_runs_and_the_run_is_readable(self, shell: InteractiveShell) -> None:
        cell = TRAIN + "import time\nprint('waiting', flush=True)\ntime.sleep(600)"
        assert shell.run_cell(f"%%dtscope profile -n 2 --background\n{cell}").success
        profile = session.current().running
        assert profile is not None
        until(logged("waiting"))
        shell.run_line_magic("unload_ext", "dtscope_jupyter")
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in profile.job.pids))
        shell.run_line_magic("load_ext", "dtscope_jupyter")
        assert len(shell.run_cell("%dtscope open dtscope-runs").result.table("steps")) == 16


class TestFunctionForm:
    def test_it_works_in_a_plain_script(self, tmp_path: Path) -> None:
        script = """
            import dtscope_jupyter as dts
            def train(steps):
                import torch, torch.distributed as dist
                dist.init_process_group()
                model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                for _ in range(steps):
                    model(torch.ones(2, 4)).sum().backward()
                    optimizer.step()
                if steps == 3:
                    raise ValueError("three")
            run = dts.profile(train, nprocs=2, args=(5,), budget="1%")
            print(run.world_size, run.name, len(run.table("steps")))
            dts.profile(train, nprocs=2, args=(3,), directory="three")
        """
        (tmp_path / "script.py").write_text(textwrap.dedent(script))
        done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == "2 train 10\n"
        assert done.returncode == 1
        assert 'raise ValueError("three")' in done.stderr
        assert "RankError: rank" in done.stderr
