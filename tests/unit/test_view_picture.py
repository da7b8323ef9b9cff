# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The picture: what its pixels say, and that it can be drawn of anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from analysis_rows import counted
from analysis_rows import tables as rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtscope_jupyter import schema
from dtscope_jupyter.diagnosis.finding import Finding, Severity
from dtscope_jupyter.diagnosis.result import Diagnosis
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.palette import palette
from dtscope_jupyter.view.picture import draw
from dtscope_jupyter.view.picture.canvas import Canvas
from dtscope_jupyter.view.picture.heat import Heat
from dtscope_jupyter.view.picture.panel import ASIDE, LEFT, MARGIN, TITLE
from dtscope_jupyter.view.scene.build import scene
from tests.view_tables import ORIGIN, ddp, pixels, stuck, tables

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT = 200_000
CALM = Diagnosis([], [0, 1, 2, 3], 12, 100.0)
LATE = Finding(
    "straggler", "compute", (2,), Severity.CRITICAL, 0.98, 20.0, tuple(range(6, 12)), {},
    "Give rank 2 less to do.", "Rank 2 is late: 20 ms more compute.",
)
BLAMED = Diagnosis([LATE], [0, 1, 2, 3], 12, 100.0)


def picture(given: dict[str, pa.Table], diagnosis: Diagnosis | None = CALM, theme: str = "light", width: int = 1000) -> bytes:
    return draw(given, diagnosis, title="run", subtitle="4 ranks", theme=theme, width=width)


def area(png: bytes, meaning: str, theme: str = "light") -> int:
    return int((pixels(png) == palette(theme).rgb(meaning)).all(axis=2).sum())


class TestBytes:
    def test_are_the_same_for_the_same_run(self) -> None:
        assert picture(ddp(late=2), BLAMED) == picture(ddp(late=2), BLAMED)

    @pytest.mark.parametrize("theme", ["light", "dark", "high_contrast"])
    def test_are_a_png_of_twice_the_width(self, theme: str) -> None:
        png = picture(ddp(late=2), BLAMED, theme)
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert pixels(png).shape[1] == 2000
        assert len(png) < LIMIT

    @pytest.mark.parametrize("ranks", [1, 2, 5, 9, 17, 65])
    def test_stay_small_with_many_ranks(self, ranks: int) -> None:
        assert len(picture(ddp(ranks, 40, late=0), BLAMED)) < LIMIT

    def test_stay_small_with_a_thousand_noisy_ranks(self) -> None:
        given = ddp(1024, 3, late=700, parameters=1)
        noise = np.random.default_rng(1)
        steps = given["steps"].to_pandas().loc[lambda f: f.index.repeat(70)]
        steps["step"] = np.tile(np.arange(210), 1024)
        steps["source"], steps["comm_ms"], steps["compute_ms"], steps["overlap_ms"] = "event", 90.0, 50.0, noise.uniform(0, 90, len(steps))
        given["steps"] = type(given["steps"]).from_pandas(steps, schema=schema.TABLES["steps"].arrow, preserve_index=False)
        assert len(picture(given)) < LIMIT

    def test_unknown_theme_is_one_line(self) -> None:
        with pytest.raises(DtscopeError, match="no theme 'pink'; choose one of light, dark, high_contrast"):
            picture(ddp(), theme="pink")


class TestMeaning:
    def test_more_exposed_communication_is_more_orange(self) -> None:
        little, much = (area(picture(ddp(exposed_ms=ms)), "exposed") for ms in (1.0, 20.0))
        assert much > 4 * little > 0

    def test_nothing_exposed_is_no_orange_but_in_the_legend(self) -> None:
        legend = area(picture(ddp(exposed_ms=0.0)), "exposed")
        assert legend < 24 * 24

    def test_lanes_are_as_long_as_what_they_show(self) -> None:
        rows = pixels(picture(ddp(2, 4, exposed_ms=10.0)))
        lane = max((row for row in rows), key=lambda row: (row == palette().rgb("exposed")).all(axis=1).sum())
        width = 2000 - 2 * (LEFT + MARGIN + ASIDE)
        assert (lane == palette().rgb("exposed")).all(axis=1).sum() == pytest.approx(0.10 * width, abs=4)
        assert (lane == palette().rgb("overlapped")).all(axis=1).sum() == pytest.approx(0.20 * width, abs=4)

    def test_a_timed_step_beside_estimates_is_dotted(self) -> None:
        """Of 8 steps two are timed: their cells have a dot, so that the picture of none timed has fewer colours at those places."""
        shown = scene(rows(**counted(8)), None)
        canvas = Canvas(1000, 200, palette(), 2)
        heat = Heat(shown.exposed, shown.exposed.pooled(192, 200), shown.step_ms, shown.comm.values, None, [])
        heat.draw(canvas, 0)
        drawn = pixels(canvas.png())
        end = 1000 - MARGIN - ASIDE
        width, middle = (end - LEFT) / 8, round(2 * (TITLE + heat.row / 2))
        marks = [round(2 * (LEFT + width * step + 8)) for step in range(8)]
        cells = [drawn[middle - 3 : middle + 4, x - 3 : x + 4].reshape(-1, 3) for x in marks]
        assert [len(np.unique(cell, axis=0)) > 1 for cell in cells] == [step in (3, 7) for step in range(8)]

    def test_the_mean_of_a_step_stands_above_it(self) -> None:
        drawn = [pixels(picture(ddp(2, steps, exposed_ms=30.0))) for steps in (8, 9)]
        orange = [int((rows == palette().rgb("exposed")).all(axis=2).sum()) for rows in drawn]
        heights = [len(rows) for rows in drawn]
        assert heights[1] - heights[0] == 2 * (18 + 4), "a strip above the columns, unless the cells are few"
        assert min(orange) > 0

    def test_a_healthy_map_is_pale_and_a_sick_one_is_not(self) -> None:
        pale, dark = (pixels(picture(ddp(exposed_ms=ms, parameters=0))) for ms in (0.5, 30.0))
        dear = [palette().ramp(i / 23) for i in range(16, 24)]
        few, many = (sum(int((image == color).all(axis=2).sum()) for color in dear) for image in (pale, dark))
        assert many > 20 * few

    def test_a_finding_puts_its_colour_beside_the_sentence(self) -> None:
        assert area(picture(ddp(late=2), BLAMED), "critical") > 1000
        assert area(picture(ddp(late=2), CALM), "critical") == 0
        assert area(picture(ddp(late=2), CALM), "good") > 1000

    def test_what_was_not_judged_is_not_called_good(self) -> None:
        assert area(picture(ddp(parameters=0), None), "finding") == 0
        tall = (pixels(picture(ddp(parameters=0), None)) == palette().rgb("good")).all(axis=2).sum(axis=0).max()
        assert tall < 40

    def test_ranks_that_never_called_are_marked_in_dumps(self) -> None:
        assert area(picture(stuck()), "critical") > area(picture(stuck(culprit=-1)), "critical") + 1000
        assert area(picture(stuck()), "exposed") > 1000


class TestAnything:
    def test_nothing(self) -> None:
        assert len(picture(tables(), None)) < LIMIT

    @pytest.mark.parametrize("missing", ["steps", "collectives", "host", "gradients", "parameters", "groups"])
    def test_without_one_table(self, missing: str) -> None:
        given = ddp()
        given[missing] = given[missing].slice(0, 0)
        assert len(picture(given)) < LIMIT

    def test_long_names_do_not_widen_it(self) -> None:
        png = draw(ddp(), BLAMED, title="a name " * 60, subtitle="中文 → ünï " * 60, width=700)
        assert pixels(png).shape[1] == 1400

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def test_odd_rows(self, data: st.DataObject) -> None:
        number = st.one_of(st.none(), st.floats(), st.just(0.0))
        time = st.one_of(st.none(), st.integers(ORIGIN, ORIGIN + 10**9))
        index = st.integers(0, 3)
        step = {"rank": index, "step": index, "start_ns": time, "end_ns": time, "comm_ms": number, "overlap_ms": number,
                "source": st.sampled_from(["event", "host", "profiler"]), "synced_norm": number, "nonfinite": st.one_of(st.none(), index)}
        call = {"rank": index, "step": st.one_of(st.none(), index), "seq": st.one_of(st.none(), index), "process_group": st.just("0"),
                "operation": st.sampled_from(["all_reduce", "send"]), "start_ns": time, "end_ns": time,
                "bytes": st.one_of(st.none(), index), "state": st.sampled_from(["scheduled", "completed", None])}
        norm = {"rank": index, "step": index, "parameter_id": index, "local_norm": number, "ready_ns": time}
        drawn = {
            name: data.draw(st.lists(st.fixed_dictionaries(columns), max_size=8))
            for name, columns in (("steps", step), ("collectives", call), ("gradients", norm))
        }
        assert len(picture(tables(**drawn), data.draw(st.sampled_from([None, CALM, BLAMED])))) < LIMIT


@pytest.mark.parametrize("fit", ["fit", "fit_end"])
def test_a_text_of_many_pages_is_measured_a_few_times_only(monkeypatch: pytest.MonkeyPatch, fit: str) -> None:
    measured: list[int] = []
    real = Canvas.measure

    def counted(self: Canvas, text: str, **options: Any) -> float:
        measured.append(len(text))
        return real(self, text, **options)

    monkeypatch.setattr(Canvas, "measure", counted)
    canvas = Canvas(400, 100, palette("light"), 2)
    shown = getattr(canvas, fit)("n" * 100_000, 120)
    assert real(canvas, shown) <= 120
    assert sum(measured) < 500_000


@pytest.mark.parametrize(("name", "room", "kept"), [
    ("head.weight", 200, "head.weight"),
    ("layers.0.attention.weight", 70, "…weight"),
    ("layers.0.w", 50, "…0.w"),
    ("averyveryverylongparametername", 60, "…"),
])
def test_a_long_name_keeps_its_last_parts(name: str, room: float, kept: str) -> None:
    canvas = Canvas(400, 20, palette(), 2)
    shown = canvas.fit_name(name, room, size=12)
    assert canvas.measure(shown, size=12) <= room
    assert shown.startswith(kept)
