# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The report that stays in a notebook when kernel, browser and network are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dtscope_jupyter import rundir
from dtscope_jupyter.ending import sentence
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.run import Run
from dtscope_jupyter.view.report import Report
from dtscope_jupyter.view.report.lines import shown_path
from tests.view_tables import ddp, tables


def report(path: Path | None = Path("runs/first"), **made: int) -> Report:
    return Report(Run(ddp(**made), name="first", path=path))


class TestBundle:
    def test_is_a_png_and_text_and_nothing_else(self) -> None:
        data, metadata = report()._repr_mimebundle_()
        assert sorted(data) == ["image/png", "text/plain"]
        assert data["image/png"].startswith(b"\x89PNG")
        assert metadata == {"image/png": {"width": 1000}}

    def test_is_what_ipython_shows(self) -> None:
        formatter = InteractiveShell.instance().display_formatter
        assert formatter is not None
        data, metadata = formatter.format(report())
        assert sorted(data) == ["image/png", "text/plain"]
        assert metadata["image/png"] == {"width": 1000}

    def test_is_the_same_twice(self) -> None:
        first, second = report(late=2), report(late=2)
        assert str(first) == str(second)
        assert first.png == second.png

    def test_saves_its_picture(self, tmp_path: Path) -> None:
        shown = report()
        assert shown.save(tmp_path / "run.png").read_bytes() == shown.png


class TestText:
    def test_says_who_what_and_where(self) -> None:
        lines = str(report(late=2)).splitlines()
        assert lines[0] == "first: 4 ranks · gloo · 12 steps"
        assert lines[-1] == "read from: runs/first"
        assert any(line.split()[:2] == ["rank", "step"] for line in lines)

    def test_has_the_numbers_of_the_run(self) -> None:
        row = next(line for line in str(report(exposed_ms=5)).splitlines() if line.strip().startswith("0 "))
        rank, step, _, comm, exposed, ratio, *_ = row.split()
        assert (rank, float(step), float(comm), float(exposed)) == ("0", 100.0, 25.0, 5.0)
        assert float(ratio) == pytest.approx(0.8)

    def test_says_that_waits_are_summed(self) -> None:
        lines = str(report()).splitlines()
        assert "mean of a step; wait is summed over collectives, which may overlap" in lines

    def test_lists_at_most_sixteen_ranks(self) -> None:
        lines = str(report(ranks=40)).splitlines()
        assert "and 24 more ranks" in lines

    def test_of_nothing_says_so(self) -> None:
        assert "Nothing was recorded." in str(Report(Run(tables(), name="empty")))

    def test_shows_no_absolute_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert shown_path(tmp_path / "a" / "b") == "a/b"
        assert shown_path(Path("../x")) == "../x"
        assert shown_path(Path("/somewhere/else")) == "else"


ENDS = {
    "rank 1: ValueError: bad batch\nof 3": "Rank 1 raised ValueError: bad batch.",
    "rank 0: was not done after --timeout 5 s": "Timed out after 5 s: rank 0 was not done.",
    "rank 0: was not done after --timeout 5 s, nor was rank 2": "Timed out after 5 s: rank 0 was not done, nor was rank 2.",
    "rank 1: left by sys.exit with code 3": "Rank 1 left by sys.exit with code 3.",
    "rank 0: could not be observed: no space left": "Rank 0 could not be observed: no space left.",
    "rank 2: ended by SIGKILL (out of memory, or killed by hand)": "Rank 2 ended by SIGKILL (out of memory, or killed by hand).",
    "rank 0: hang: Rank 0 never called it.": "Stopped at a hang. Rank 0 never called it.",
    "no free port": "The run failed: no free port.",
}


class TestEnd:
    @pytest.mark.parametrize(("message", "said"), ENDS.items())
    def test_is_told_in_the_rank_s_own_words(self, message: str, said: str) -> None:
        assert sentence({"state": "failed", "message": message}) == said

    @pytest.mark.parametrize("meta", [{}, {"state": "done", "message": ""}, {"state": "running"}])
    def test_is_none_of_a_run_that_went_well(self, meta: dict[str, str]) -> None:
        assert sentence(meta) == ""

    def test_comes_first_in_the_report(self, tmp_path: Path) -> None:
        meta = {"name": "short", "world_size": 1, "state": "failed", "message": "rank 0: ValueError: bad batch"}
        attempt = rundir.create_attempt(tmp_path / "short", meta)
        attempt.rank_path(0).mkdir()
        run = Run.of_directory(attempt.run)
        assert str(run.report()).splitlines()[2] == "Rank 0 raised ValueError: bad batch."
        assert str(run.diagnose()).splitlines()[1] == "Rank 0 raised ValueError: bad batch."

    def test_of_a_user_s_interrupt_says_so(self) -> None:
        assert sentence({"state": "interrupted", "message": "interrupted by the user"}) == "Interrupted by the user."


def test_the_theme_is_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(ddp(2, 3), name="r")
    light, dark = run.report().png, run.report("dark").png
    assert light != dark
    monkeypatch.setenv("DTRAINSCOPE_THEME", "dark")
    assert run.report().png == dark
    assert run.report("light").png == light
    monkeypatch.setenv("DTRAINSCOPE_THEME", "pink")
    with pytest.raises(DtscopeError, match="no theme 'pink'; choose one of light, dark, high_contrast"):
        run.report()
