# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""plotly figures: their numbers, colours and words."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from analysis_rows import counted
from analysis_rows import tables as rows

import dtscope_jupyter as dts
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.run import Run
from dtscope_jupyter.view.figures import NAMES, figure
from dtscope_jupyter.view.palette import palette
from tests.view_tables import ORIGIN, ddp, tables

if TYPE_CHECKING:
    from pathlib import Path


def title(made: Any) -> str:
    return str(made.layout.title.text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("theme", ["light", "dark", "high_contrast"])
def test_every_panel_has_one_in_every_theme(name: str, theme: str) -> None:
    made = figure(ddp(late=2), name, theme=theme)
    assert made.layout.template.layout.paper_bgcolor == palette(theme)["paper"]
    assert title(made)


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_of_nothing_says_so(name: str) -> None:
    made = figure(tables(), name)
    assert not made.data or name in ("findings", "log")
    assert len(made.to_json()) < 10_000


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_ranks_fit_on_a_page(name: str) -> None:
    assert figure(ddp(1000, 2, late=7, parameters=1), name).layout.height <= 1100


def test_are_the_same_twice() -> None:
    assert [figure(ddp(late=1), name).to_json() for name in NAMES] == [figure(ddp(late=1), name).to_json() for name in NAMES]


def test_a_run_and_its_tables_give_the_same_but_the_name() -> None:
    named = figure(Run(ddp(), name="ours"), "overlap")
    assert named.layout.annotations[0].text.startswith("ours. ")
    assert np.array_equal(named.data[0].z, figure(ddp(), "overlap").data[0].z)


class TestOverlap:
    def test_has_the_exposed_milliseconds(self) -> None:
        heat = figure(ddp(3, 4, exposed_ms=7.0), "overlap").data[0]
        assert np.allclose(heat.z, 7.0)
        assert (list(heat.x), list(heat.y)) == ([0, 1, 2, 3], [0, 1, 2])
        assert heat.colorscale[-1][1] == palette().cost[-1]

    def test_of_a_healthy_run_ends_at_a_tenth_of_a_step(self) -> None:
        assert figure(ddp(exposed_ms=0.1), "overlap").data[0].zmax == 10

    def test_ratio_is_free_at_one(self) -> None:
        heat = figure(ddp(exposed_ms=5.0), "overlap", metric="overlap_ratio").data[0]
        assert np.allclose(heat.z, 0.8)
        assert (heat.colorscale[0][1], heat.colorscale[-1][1]) == (palette().cost[-1], palette().cost[0])

    @pytest.mark.parametrize(("metric", "value"), [("comm_ms", 25.0), ("step_ms", 100.0), ("wait_ms", 0.0), ("compute_ms", 95.0)])
    def test_metrics(self, metric: str, value: float) -> None:
        assert np.allclose(figure(ddp(exposed_ms=5.0), "overlap", metric=metric).data[0].z, value)


class TestTimeline:
    def test_bars_are_the_intervals(self) -> None:
        made = figure(ddp(2, 4, exposed_ms=10.0), "timeline", step=1)
        exposed = next(trace for trace in made.data if trace.name == "exposed comm")
        assert np.allclose(exposed.base, 60.0)
        assert np.allclose(exposed.x, 10.0)
        assert exposed.marker.color == palette()["exposed"]

    def test_names_the_last_rank(self) -> None:
        made = figure(ddp(late=2), "timeline", step=8)
        assert [note.text for note in made.layout.annotations][1:] == ["last by 20.0 ms"]

    def test_shows_the_ranks_asked_for(self) -> None:
        made = figure(ddp(), "timeline", ranks=[1, 3])
        assert list(made.layout.yaxis.ticktext) == ["rank 1", "rank 3"]

    @pytest.mark.parametrize(("options", "words"), [({"step": 99}, "step 99 has no times"), ({"ranks": [9]}, "rank 9 has no times")])
    def test_of_what_is_not_there_is_one_line(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(DtscopeError, match=words):
            figure(ddp(), "timeline", **options)


class TestOthers:
    def test_gradients_are_by_parameter_and_rank(self) -> None:
        heat = figure(ddp(3, 2, parameters=4), "gradients").data[0]
        assert heat.customdata.shape == (4, 3)
        assert heat.customdata[2][0] == pytest.approx(0.09)
        assert heat.z[2][0] == pytest.approx(np.log10(0.09))

    def test_gradients_tell_when_they_are_ready(self) -> None:
        heat = figure(ddp(3, 2, parameters=4), "gradients", value="ready_ms").data[0]
        assert [row[0] for row in heat.z] == [3.0, 2.0, 1.0, 0.0]

    def test_waits_blame_nobody_but_the_late(self) -> None:
        made = figure(ddp(4, 12, late=2), "waits")
        assert np.allclose(made.data[0].x, [120, 120, 0, 120])

    @pytest.mark.parametrize("by", ["step", "operation", "process_group", "bucket"])
    def test_waits_by_other_keys(self, by: str) -> None:
        assert len(figure(ddp(late=2), "waits", by=by).data) == 2

    def test_devices_in_their_units(self) -> None:
        seen = [{"rank": r, "time_ns": ORIGIN + t * 10**9, "memory_bytes": 2**30 * (r + 1)} for r in (0, 1) for t in (0, 5)]
        made = figure(tables(devices=[row | {"device": "cuda:0"} for row in seen]), "devices")
        assert (title(made).split("</b>")[0], made.layout.yaxis.title.text) == ("<b>Memory", "GiB")
        assert (list(made.data[1].x), list(made.data[1].y)) == ([0, 5], [2, 2])

    def test_topology_of_the_capture(self, captures: Path) -> None:
        made = figure(dts.open(captures / "h200" / "host"), "topology")
        labels = " ".join(made.data[-1].text)
        assert all(f"GPU {i}" in labels and f"rank {i}" in labels for i in range(4))
        assert "nvlink" in [trace.name for trace in made.data]

    def test_findings_of_the_capture(self, captures: Path) -> None:
        cells = figure(dts.open(captures / "h200" / "ddp_straggler"), "findings").data[0].cells.values
        assert (cells[0][0], cells[2][0], cells[3][0]) == ("critical", "straggler<br>compute", "rank 2")

    def test_log_cannot_carry_markup(self) -> None:
        note = {"rank": 0, "kind": "warning", "text": "<a href='x'>click</a>", "time_ns": ORIGIN}
        assert figure(tables(notes=[note]), "log").data[0].cells.values[-1][0].startswith("&lt;a")


class TestDoor:
    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("overlpa", {}, "no figure 'overlpa'; choose one of overlap, gradients"),
            ("overlap", {"colour": 1}, "figure 'overlap' has no option 'colour'; choose from metric"),
            ("log", {"by": 1}, "figure 'log' has no option 'by'; it has none"),
            ("overlap", {"metric": "x"}, "no metric 'x'; choose one of exposed_ms"),
            ("overlap", {"theme": "x"}, "no theme 'x'"),
            ("gradients", {"step": 99}, "step 99 has no local_norm; choose from 11 to 11"),
        ],
    )
    def test_bad_requests_are_one_line(self, name: str, options: dict[str, Any], words: str) -> None:
        with pytest.raises(DtscopeError, match=words):
            figure(ddp(), name, **options)

    def test_plotly_is_imported_when_drawn(self) -> None:
        code = "import sys, dtscope_jupyter.view.figures; sys.exit('plotly' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestEstimates:
    """Of eight steps two were timed."""

    def test_every_step_is_drawn_and_the_timed_ones_are_dotted(self) -> None:
        heat, dots = figure(rows(**counted(8)), "overlap").data
        assert np.isfinite(np.array(heat.z, float)).all()
        assert sorted(zip(dots.y, dots.x, strict=True)) == [(0, 3), (0, 7), (1, 3), (1, 7)]
        assert heat.customdata[0].tolist() == [" (estimate)"] * 3 + [""] + [" (estimate)"] * 3 + [""]

    def test_the_ratio_is_of_the_timed_ones(self) -> None:
        heat = figure(rows(**counted(8)), "overlap", metric="overlap_ratio").data[0]
        assert [np.isfinite(value) for value in np.array(heat.z, float)[0]] == [step in (3, 7) for step in range(8)]

    def test_a_step_without_times_is_one_line(self) -> None:
        with pytest.raises(DtscopeError, match="step 2 has no times in run; choose from 3 to 7"):
            figure(rows(**counted(8)), "timeline", step=2)
