# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The panels over real captures, as one offline file in a browser."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import dtscope_jupyter as dts

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

DRAWN = "() => performance.getEntriesByName('dtscope-first-draw').length"
PINCH = """(canvas, [way, [left, right]]) => {
  const { x, y } = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  const finger = (type, id, at) => canvas.dispatchEvent(
    new PointerEvent(type, { pointerId: id, pointerType: "touch", clientX: x + at, clientY: y + 20, bubbles: true }));
  finger("pointerdown", 1, left - (way < 0 ? 100 : 0));
  finger("pointerdown", 2, right + (way < 0 ? 100 : 0));
  for (let by = 10; by <= 100; by += 10) {
    finger("pointermove", 1, left - (way < 0 ? 100 - by : by));
    finger("pointermove", 2, right + (way < 0 ? 100 - by : by));
  }
  finger("pointerup", 1, left);
  finger("pointerup", 2, right);
}"""
PAPER = "c => [...c.getContext('2d').getImageData(2, c.height - 2, 1, 1).data]"


@pytest.fixture(scope="module")
def straggler(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dts.open(captures / "h200" / "ddp_straggler").save_html(tmp_path_factory.mktemp("page") / "straggler.html")


@pytest.fixture
def panels(page: Page, straggler: Path) -> Locator:
    page.goto(straggler.as_uri())
    page.wait_for_function(DRAWN)
    return page.locator(".dts")


class TestPage:
    def test_asks_for_nothing(self, page: Page, straggler: Path) -> None:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(straggler.as_uri())
        page.wait_for_function(DRAWN)
        assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [straggler.as_uri()]

    def test_says_the_finding_first(self, panels: Locator) -> None:
        expect(panels.locator(".dts-finding strong").first).to_contain_text("Rank 2 is late")
        expect(panels.locator("[data-panel=instead] h3")).to_have_text("What rank 2 did instead")
        row = panels.locator("[data-panel=instead] tr", has_text="compute")
        more = float(row.locator("td").nth(2).inner_text().lstrip("+"))
        assert 24 < more < 32

    def test_a_damaged_page_says_so(self, page: Page, straggler: Path, tmp_path: Path) -> None:
        text = straggler.read_text()
        place = text.index('id="dtscope-data">') + 5000
        damaged = tmp_path / "damaged.html"
        damaged.write_text(text[:place] + "AAAAAAAA" + text[place + 8 :])
        page.goto(damaged.as_uri())
        expect(page.locator("#dtscope")).to_contain_text("could not be read")


class TestMap:
    def test_every_metric_is_drawn_and_named(self, panels: Locator) -> None:
        names = {
            "exposed": "Exposed communication",
            "ratio": "Overlap ratio",
            "wait": "Wait",
            "step": "Step time",
            "bandwidth": "Bus bandwidth",
        }
        pictures = set()
        for metric, name in names.items():
            panels.get_by_label("metric").select_option(metric)
            expect(panels.locator("[data-panel=map] h3")).to_have_text(name)
            pictures.add(panels.locator("[data-panel=map] canvas").evaluate("c => c.toDataURL()"))
        assert len(pictures) == len(names)

    def test_the_keyboard_chooses_and_it_is_read_out(self, panels: Locator) -> None:
        canvas = panels.locator("[data-panel=map] canvas")
        canvas.focus()
        canvas.press("Home")
        canvas.press("ArrowDown")
        expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 13")
        expect(panels.locator("[data-panel=map] .dts-voice")).to_contain_text(
            re.compile(r"rank 1, step 13, exposed communication [\d.]+ ms")
        )

    def test_order_by_cost_puts_the_culprit_last(self, panels: Locator, page: Page) -> None:
        canvas = panels.locator("[data-panel=map] canvas")
        panels.get_by_label("order").select_option("cost")
        page.wait_for_function("() => true")
        canvas.click(position={"x": 90, "y": 26 + 3 * 22 + 10})
        expect(panels.locator("[data-panel=collectives] h3")).to_contain_text("rank 2")


class TestTimeline:
    def test_zoom_search_and_unfold(self, panels: Locator) -> None:
        canvas = panels.locator("[data-panel=timeline] canvas")
        high = canvas.evaluate("c => c.clientHeight")
        canvas.focus()
        canvas.press("w")
        expect(canvas).not_to_have_js_property("clientHeight", high)
        canvas.press("0")
        expect(canvas).to_have_js_property("clientHeight", high)
        panels.get_by_label("find a kernel or host activity").fill("nvjet")
        panels.get_by_label("find a kernel or host activity").press("Enter")
        page_height = canvas.evaluate("c => c.clientHeight")
        assert page_height > high
        panels.get_by_label("find a kernel or host activity").fill("no such kernel")
        panels.get_by_label("find a kernel or host activity").press("Enter")
        expect(panels.locator(".dts-toast")).to_have_text("nothing in this step is called no such kernel")

    def test_shift_drag_measures(self, panels: Locator, page: Page) -> None:
        box = panels.locator("[data-panel=timeline] canvas").bounding_box()
        assert box
        page.keyboard.down("Shift")
        page.mouse.move(box["x"] + 200, box["y"] + 10)
        page.mouse.down()
        page.mouse.move(box["x"] + 400, box["y"] + 10, steps=5)
        page.mouse.up()
        page.keyboard.up("Shift")
        expect(panels.locator("[data-panel=timeline] .dts-voice")).to_contain_text(re.compile(r"measured [\d.]+ ms"))
        expect(panels.locator("[data-panel=timeline] .dts-tip")).to_contain_text("rank 2: compute")

    def test_two_fingers_zoom_where_they_are(self, panels: Locator) -> None:
        canvas = panels.locator("[data-panel=timeline] canvas")
        before = canvas.evaluate("c => [c.clientHeight, c.toDataURL()]")
        canvas.evaluate(PINCH, [1, [300, 340]])
        expect(canvas).not_to_have_js_property("clientHeight", before[0])
        pulled = canvas.evaluate("c => c.toDataURL()")
        canvas.evaluate(PINCH, [-1, [300, 340]])
        canvas.evaluate(PINCH, [-1, [300, 340]])
        expect(canvas).to_have_js_property("clientHeight", before[0])
        assert len({before[1], pulled, canvas.evaluate("c => c.toDataURL()")}) >= 2


class TestDrill:
    def test_a_row_is_chosen_by_keyboard(self, panels: Locator) -> None:
        rows = panels.locator("[data-panel=collectives] tbody tr")
        expect(rows.first).to_have_attribute("aria-selected", "true")
        rows.first.focus()
        rows.first.press("ArrowDown")
        rows.nth(1).press("Enter")
        expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
        panels.get_by_label("back to where you looked before").click()
        expect(rows.first).to_have_attribute("aria-selected", "true")

    def test_csv_holds_what_the_table_shows(self, panels: Locator, page: Page) -> None:
        section = panels.locator("[data-panel=collectives]")
        section.get_by_label("copy collectives").click()
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        section.get_by_role("button", name="CSV").click()
        expect(panels.locator(".dts-toast")).to_have_text("collectives.csv is on the clipboard")
        rows = list(csv.DictReader(io.StringIO(page.evaluate("() => navigator.clipboard.readText()"))))
        shown = section.locator("tbody tr")
        assert len(rows) == shown.count()
        assert abs(float(rows[0]["wait_ms"]) - float(shown.first.locator("td").nth(4).inner_text())) < 0.06


class TestLook:
    @pytest.mark.parametrize(
        ("scheme", "contrast", "theme"),
        [("light", "no-preference", "light"), ("dark", "no-preference", "dark"), ("dark", "more", "high_contrast")],
    )
    def test_follows_the_theme(self, page: Page, straggler: Path, scheme: Any, contrast: Any, theme: str) -> None:
        page.emulate_media(color_scheme=scheme, contrast=contrast)
        page.goto(straggler.as_uri())
        page.wait_for_function(DRAWN)
        expect(page.locator(".dts")).to_have_attribute("data-theme", theme)

    @pytest.mark.parametrize("width", [420, 700, 1000, 1600, 3200])
    def test_no_text_is_cut_at_any_width(self, chromium: Browser, straggler: Path, width: int) -> None:
        page = chromium.new_page(viewport={"width": width, "height": 900})
        page.goto(straggler.as_uri())
        page.wait_for_function(DRAWN)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        cut = page.evaluate(
            """() => [...document.querySelectorAll('.dts h3, .dts button, .dts label, .dts .dts-sub, .dts th')]
                 .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
                 .map(e => e.textContent)"""
        )
        assert cut == []
        page.close()

    def test_every_control_has_a_name(self, panels: Locator) -> None:
        unnamed = panels.evaluate(
            """root => [...root.querySelectorAll('button, select, input, canvas[tabindex], summary')]
                 .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim()))
                 .map(e => e.outerHTML)"""
        )
        assert unnamed == []
