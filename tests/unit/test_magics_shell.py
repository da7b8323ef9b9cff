# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The magics in a real shell, as far as they need no rank."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

from dtscope_jupyter import arguments, overviews, rundir, session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

HEAVY = ("torch", "pandas", "plotly", "pyarrow")


def refusal(shell: InteractiveShell, cell: str) -> str:
    error = shell.run_cell(cell).error_in_exec
    assert type(error) is UsageError
    assert "\n" not in str(error)
    return str(error)


class TestImports:
    @pytest.mark.parametrize(
        "statement",
        [
            "import dtscope_jupyter",
            "from IPython.core.interactiveshell import InteractiveShell as S; S.instance().run_line_magic('load_ext', 'dtscope_jupyter')",
        ],
        ids=["package", "extension"],
    )
    def test_neither_package_nor_extension_imports_what_is_heavy(self, statement: str) -> None:
        probe = f"{statement}\nimport sys; print([name for name in {HEAVY} if name in sys.modules])"
        assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout == "[]\n"


class TestBadInput:
    @pytest.mark.parametrize(
        ("cell", "words"),
        [
            ("%dtscope opn x", ["unknown subcommand 'opn'", "did you mean open?"]),
            ("%dtscope show timelin", ["'timelin'", "did you mean timeline?"]),
            ("%%dtscope profile --colect steps\nx = 1", ["--colect", "did you mean --collect?"]),
            ("%%dtscope profile --n 2\nx = 1", ["--n 2", "did you mean -n?"]),
            ("%%dtscope\nx = 1", ["needs a subcommand", "%%dtscope profile"]),
            ("%dtscope open", ["PATH"]),
            ("%dtscope open nowhere", ["'nowhere' does not exist"]),
            ("%dtscope open 'nowhere", ["quotation"]),
            ("%dtscope open *.json", ["'*.json' matches nothing"]),
            ("%dtscope show nothing", ["'nothing'", "overlap"]),
            ("%dtscope diagnose", ["no current run"]),
            ("%dtscope stop", ["nothing to stop"]),
            ("%dtscope attach nowhere", ["'nowhere' is no directory yet (a job makes it as its ranks begin)"]),
            ("%dtscope attach 99999999", ["no process has pid 99999999"]),
            ("%dtscope export perfetto", ["no current run"]),
            ("%dtscope inject flood", ["'flood'", "straggler"]),
            ("%dtscope inject nan --rank x", ["'x' names no ranks"]),
            ("%%dtscope runs\nx = 1", ["takes no cell"]),
            ("%dtscope profile", ["needs a cell"]),
            ("%%dtscope profile -n 0\nx = 1", ["at least 1 rank, not 0"]),
            ("%%dtscope profile -n two\nx = 1", ["'two'"]),
            ("%%dtscope profile --frobnicate\nx = 1", ["--frobnicate"]),
            ("%%dtscope profile -n 64 --backend nccl\nx = 1", ["-n 64", "GPU"]),
            ("%%dtscope profile --push absent\nx = 1", ["--push absent", "no such name"]),
            ("%%dtscope profile --push 1x\nx = 1", ["'1x'"]),
            ("%%dtscope profile --pull a:some\nx = 1", ["'a:some'"]),
            ("%%dtscope profile --budget 200%\nx = 1", ["'200%'"]),
            ("%%dtscope profile --disk -1\nx = 1", ["--disk"]),
            ("%%dtscope profile --disk 1\nx = 1", ["'1' is too little", "64KiB"]),
            ("%%dtscope profile --timeout 0\nx = 1", ["'0'"]),
            ("%%dtscope profile --collect step\nx = 1", ["'step'", "did you mean steps?"]),
            ("%%dtscope profile --dir /proc/nothing\nx = 1", ["/proc/nothing"]),
            ("%%dtscope profile --dir /etc/hostname\nx = 1", ["is a file"]),
            ("%%dtscope profile --name ...\nx = 1", ["'...'"]),
            ("%%dtscope profile --name ''\nx = 1", ["--name ''"]),
            ("%%dtscope profile --dir ''\nx = 1", ["--dir is empty"]),
            ("%%dtscope profile --dir .\nx = 1", ["--dir '.'", "holds the notebook itself"]),
            ("%%dtscope profile --dir /\nx = 1", ["--dir '/'", "holds the notebook itself"]),
            ("%dtscope inject straggler --ms -5", ["'-5' is no length"]),
            ("%dtscope inject straggler --ms nan", ["'nan' is no length"]),
            ("%dtscope inject straggler --steps 0", ["'0' is no count"]),
            ("%dtscope inject straggler --step -1", ["'-1' is no step"]),
            ("%dtscope capture profile --steps 0", ["'0' is no count"]),
            ("%dtscope probe links -n 1", ["-n 1", "two ends"]),
            ("%dtscope report", ["no current run"]),
            ("%dtscope report nothing", ["'nothing' does not exist"]),
            ("%%dtscope profile\nx = (\n", ["line 2 of the cell", "never closed"]),
            ("%%dtscope profile\nx = 1\n!ls\n", ["line 3 of the cell", "'!ls'"]),
            ("%%dtscope profile\n%time 1\n", ["line 2 of the cell", "'%time'"]),
            ("%%dtscope profile\nx = 1\nawait x\n", ["line 3 of the cell", "'await' outside function: await x", "asyncio.run"]),
            ("%%dtscope profile\nreturn 1\n", ["line 2 of the cell", "'return' outside function: return 1"]),
            ("%%dtscope profile -n 1000000\nx = 1", ["-n 1000000", "at most"]),
            (f"%%dtscope profile --dir {'x' * 300}\nx = 1", ["File name too long", "--dir"]),
            ("%%dtscope profile --dir ~nobody-of-that-name/x\nx = 1", ["~nobody-of-that-name", "--dir"]),
        ],
    )
    def test_it_is_one_line_with_the_value(self, shell: InteractiveShell, cell: str, words: list[str]) -> None:
        message = refusal(shell, cell)
        assert all(word in message for word in words), message
        assert session.current().running is None

    def test_a_pushed_value_that_cant_be_pickled_is_named(self, shell: InteractiveShell) -> None:
        shell.run_cell("import threading\nfine, lock = 1, threading.Lock()")
        assert "--push lock: a lock can't be sent" in refusal(shell, "%%dtscope profile --push fine,lock\nx = 1")

    @pytest.mark.parametrize("cell", ["%%dtscope profile\nx = 1", "%%dtscope profile --dir /tmp/x\nx = 1", "%dtscope runs"])
    def test_a_working_directory_that_is_gone(self, shell: InteractiveShell, tmp_path: Path, cell: str) -> None:
        tmp_path.rmdir()
        assert "working directory is gone" in refusal(shell, cell)

    def test_a_pushed_value_may_not_end_the_notebook(self, shell: InteractiveShell) -> None:
        shell.run_cell("class Leaving:\n    def __reduce__(self): raise SystemExit(4)\nleaving = Leaving()")
        assert "--push leaving: a Leaving can't be sent" in refusal(shell, "%%dtscope profile --push leaving\nx = 1")

    def test_a_kernel_that_is_a_rank_says_so(self, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "4")
        message = refusal(shell, "%%dtscope profile\nx = 1")
        assert "rank 1 of a job of 4" in message
        assert "attach" in message

    def test_nothing_is_left_behind(self, shell: InteractiveShell, tmp_path: Path) -> None:
        refusal(shell, "%%dtscope profile --push absent\nx = 1")
        refusal(shell, "%%dtscope profile\nx = (\n")
        assert list(tmp_path.iterdir()) == []


class TestHelp:
    @pytest.mark.parametrize("cell", ["%dtscope attach?", "%dtscope help attach", "%%dtscope attach?"])
    def test_a_question_mark_asks_for_it(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str) -> None:
        assert shell.run_cell(cell).success
        assert capsys.readouterr().out.startswith("usage: %dtscope attach ")

    @pytest.mark.parametrize("cell", ["%dtscope?", "%dtscope help", "%dtscope"])
    def test_the_overview(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str) -> None:
        assert shell.run_cell(cell).success
        assert "  diagnose  findings of the current run" in capsys.readouterr().out

    def test_other_questions_are_ipythons(self, shell: InteractiveShell) -> None:
        assert shell.transform_cell("x?\n") == "get_ipython().run_line_magic('pinfo', 'x')\n"


class TestCompletion:
    @pytest.mark.parametrize(("text", "expected"), [("%dtscope at", "attach"), ("%%dtscope profile --on", "--on-hang")])
    def test_tab_knows_subcommands_and_options(self, shell: InteractiveShell, text: str, expected: str) -> None:
        with provisionalcompleter():
            found: list[Any] = [one.text for one in shell.Completer.completions(text, len(text))]
        assert expected in found

    def test_it_offers_no_keyword_of_python_and_elsewhere_nothing_of_ours(self, shell: InteractiveShell) -> None:
        with provisionalcompleter():
            found, other = ({one.text for one in shell.Completer.completions(text, len(text))} for text in ("%dtscope ", "x = 1\nim"))
        assert found == set(arguments.SUBCOMMANDS)
        assert "import" in other


class TestLoading:
    def test_twice_is_no_harm_and_unloading_undoes_it(self, shell: InteractiveShell) -> None:
        shell.run_cell("import dtscope_jupyter; dtscope_jupyter.load_ipython_extension(get_ipython())")
        shell.run_line_magic("unload_ext", "dtscope_jupyter")
        assert not shell.run_cell("%dtscope help").success
        shell.run_line_magic("load_ext", "dtscope_jupyter")
        assert shell.run_cell("%dtscope help").success


class TestFaults:
    def test_they_wait_for_the_next_profile(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        shell.run_cell("%dtscope inject straggler --rank 1,3 --ms 50")
        told = capsys.readouterr()
        assert ("the next profile rehearses: straggler rank 1" in told.out, told.err) == (True, "")
        assert session.current().faults == [{"fault": "straggler", "rank": 1, "ms": 50.0}, {"fault": "straggler", "rank": 3, "ms": 50.0}]
        shell.run_cell("%dtscope inject clear")
        assert session.current().faults == []

    def test_one_of_a_rank_that_is_not_there_is_refused_and_nothing_is_left(self, shell: InteractiveShell, tmp_path: Path) -> None:
        shell.run_cell("%dtscope inject hang --rank 2")
        message = refusal(shell, "%%dtscope profile -n 2\nx = 1")
        assert message == "inject hang --rank 2: the profile has 2 ranks, from 0: raise -n, or %dtscope inject clear"
        assert list(tmp_path.iterdir()) == []
        assert session.current().faults == [{"fault": "hang", "rank": 2}]
        session.current().faults.clear()


def test_the_report_is_shown_again_and_of_what_a_path_names(shell: InteractiveShell, captures: Path) -> None:
    assert str(shell.run_cell(f"%dtscope report {captures / 'h200' / 'ddp_one_bucket'}").result).startswith("ddp_one_bucket: 4 ranks")
    assert str(shell.run_cell("%dtscope report").result) == str(session.current().run.report())


def test_a_folder_of_runs_is_not_made_a_run(shell: InteractiveShell) -> None:
    rundir.create_attempt(Path("dtscope-runs/a"), {"world_size": 1, "created_ns": 1})
    message = refusal(shell, "%%dtscope profile --dir dtscope-runs\nx = 1")
    assert message == "--dir 'dtscope-runs' is a folder of runs: name one inside it, e.g. 'dtscope-runs/first'"
    assert [path.name for path in Path("dtscope-runs").iterdir()] == ["a"]


def test_no_runs_is_said(shell: InteractiveShell) -> None:
    assert repr(shell.run_cell("%dtscope runs").result) == "no runs in dtscope-runs/ here"


def test_runs_are_counted_in_words_and_have_a_state(shell: InteractiveShell) -> None:
    meta = {"world_size": 1, "created_ns": 1}
    rundir.create_attempt(Path("dtscope-runs/a"), meta | {"state": "done"})
    started = rundir.create_attempt(Path("dtscope-runs/b"), meta | {"created_ns": 2, "world_size": 2, "launcher": "environment"})
    started.rank_path(0).mkdir()
    rundir.write_json(started.rank_path(0) / "rank.json", {"pid": os.getpid(), "host": socket.gethostname()})
    rundir.create_attempt(Path("dtscope-runs/c"), meta | {"created_ns": 3})
    rundir.create_attempt(Path("dtscope-runs/c"), meta | {"created_ns": 3})
    lines = repr(shell.run_cell("%dtscope runs").result).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["dtscope-runs/a", "dtscope-runs/b", "dtscope-runs/c"]
    assert (" 1 rank " in lines[0], " 1 attempt " in lines[0], lines[0].endswith("  done")) == (True, True, True)
    assert (" 2 ranks " in lines[1], lines[1].endswith("  running")) == (True, True)
    assert " 2 attempts " in lines[2]
    old = time.time() - 60
    os.utime(started.rank_path(0) / "rank.json", (old, old))
    assert repr(overviews.runs()).splitlines()[1].endswith("  silent")
    rundir.write_json(started.rank_path(0) / "rank.json", {"pid": 2**22 + 1, "host": socket.gethostname()})
    os.utime(started.rank_path(0) / "rank.json", (old, old))
    assert repr(overviews.runs()).splitlines()[1].endswith("  ended")


def test_opening_a_folder_of_several_jobs_says_which_was_taken(
    shell: InteractiveShell, captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.run_cell(f"%dtscope open {captures / 'h200'}").success
    assert "jobs lie here: this is the newest, " in capsys.readouterr().err


def test_topology_is_among_the_panels_that_show_takes(shell: InteractiveShell, captures: Path) -> None:
    shell.run_cell(f"%dtscope open {captures / 'h200' / 'host'}")
    shown = shell.run_cell("%dtscope show topology")
    assert shown.success
    assert shown.result.layout.title.text.startswith("<b>Topology")


def test_show_says_in_a_terminal_where_the_panels_are(shell: InteractiveShell, captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell(f"%dtscope open {captures / 'h200' / 'ddp_one_bucket'}")
    assert shell.run_cell("%dtscope show timeline").success
    assert "%dtscope export html" in capsys.readouterr().err
