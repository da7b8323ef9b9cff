# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The panels over real captures, as one offline file in a browser."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import dtscope_jupyter as dts
from tests.browser import lab

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Locator, Page

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
RECORDINGS = QUICKSTART.parent / "data"
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
CUT = """tables => {
  const names = '.dts h3, .dts button, .dts label, .dts .dts-sub, .dts th' + (tables ? ', .dts .dts-scroll' : '');
  return [...document.querySelectorAll(names)]
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
    .map(e => e.textContent);
}"""
KEEP_TEXTS = """const fill = CanvasRenderingContext2D.prototype.fillText;
const clear = CanvasRenderingContext2D.prototype.clearRect;
const texts = new Map();
CanvasRenderingContext2D.prototype.clearRect = function (...place) {
  texts.set(this.canvas, []);
  return clear.apply(this, place);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const wide = this.measureText(text).width;
  const left = x - (this.textAlign === 'right' ? wide : this.textAlign === 'center' ? wide / 2 : 0);
  texts.get(this.canvas)?.push({ text, left, right: left + wide, top: y - 5, bottom: y + 5 });
  return fill.call(this, text, x, y);
};
window.covered = () => {
  const found = [];
  for (const [canvas, list] of texts) {
    for (const a of list) {
      if (a.left < -0.5 || a.right > canvas.clientWidth + 0.5) found.push(`${a.text} leaves the picture`);
      for (const b of list) {
        const apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
        if (a !== b && !apart) found.push(`${a.text} on ${b.text}`);
      }
    }
  }
  return found;
};"""
CONTROLS = 'button:not([tabindex="-1"]), select, input, canvas[tabindex], summary, tr[tabindex], .dts-log'
FOCUSED = """controls => {
  const at = document.activeElement;
  const place = [...document.querySelectorAll('.dts')].flatMap(d => [...d.querySelectorAll(controls)]).indexOf(at);
  if (place < 0) return null;
  const style = getComputedStyle(at);
  return { place, what: at.outerHTML.slice(0, 80), outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1 };
}"""


def quickstart() -> Callable[[], None]:
    """The training of the example, as it stands there."""
    cells = ["".join(cell["source"]) for cell in json.loads(QUICKSTART.read_text())["cells"]]
    source = next(cell for cell in cells if cell.startswith("%%dtscope profile")).split("\n", 1)[1]

    def train() -> None:
        exec(compile(source, "quickstart", "exec"), {"__name__": "__main__"})

    return train


@pytest.fixture(scope="module")
def straggler(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dts.open(captures / "h200" / "ddp_straggler").save_html(tmp_path_factory.mktemp("page") / "straggler.html")


@pytest.fixture(scope="module")
def pages(captures: Path, straggler: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    fsdp = tmp_path_factory.mktemp("page") / "fsdp.html"
    return {"ddp_straggler": straggler, "fsdp_healthy": dts.open(captures / "h200" / "fsdp_healthy").save_html(fsdp)}


@pytest.fixture
def panels(page: Page, straggler: Path) -> Locator:
    return lab.open_file(page, straggler)


class TestPage:
    def test_asks_for_nothing_by_the_browsers_own_log(self, page: Page, straggler: Path) -> None:
        asked: list[str] = []
        devtools = page.context.new_cdp_session(page)
        devtools.on("Network.requestWillBeSent", lambda event: asked.append(event["request"]["url"]))
        devtools.on("Network.webSocketCreated", lambda event: asked.append(event["url"]))
        devtools.send("Network.enable")
        panels = lab.open_file(page, straggler)
        for tab in ("log", "devices", "gradients"):
            panels.get_by_role("tab", name=tab).click()
        panels.locator("[data-panel=map]").get_by_label("copy map").click()
        panels.locator("[data-panel=map]").get_by_role("button", name="SVG").click()
        expect(panels.locator(".dts-toast")).to_contain_text("map.svg")
        assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [straggler.as_uri()]

    def test_the_quickstart_is_small(self, page: Page, tmp_path: Path) -> None:
        run = dts.profile(quickstart(), nprocs=2, directory=tmp_path / "run")
        path = run.save_html(tmp_path / "quickstart.html")
        assert path.stat().st_size < 2_000_000
        lab.open_file(page, path)
        recorded = run.table("collectives").groupby("step")["rank"].nunique()
        newest = recorded[recorded == run.world_size].index.max()
        expect(page.locator("[data-panel=timeline] h3")).to_have_text(f"Step {newest}")
        expect(page.locator("[data-panel=gradients] header > .dts-sub")).to_contain_text("L2 norm before averaging")

    def test_says_the_finding_first(self, panels: Locator) -> None:
        expect(panels.locator(".dts-finding strong").first).to_contain_text("Rank 2 is late")
        expect(panels.locator("[data-panel=instead] h3")).to_have_text("What rank 2 did instead")
        row = panels.locator("[data-panel=instead] tr", has_text="compute")
        more = float(row.locator("td").nth(2).inner_text().lstrip("+"))
        assert 24 < more < 32

    def test_dumps_without_a_step_lead_nowhere(self, page: Page, tmp_path: Path) -> None:
        panels = lab.open_file(page, dts.open(RECORDINGS / "hang_skip").save_html(tmp_path / "hang.html"))
        expect(panels.locator(".dts-finding strong")).to_contain_text("Rank 3 hangs")
        expect(panels.locator(".dts-finding button")).to_have_count(0)
        expect(panels.locator(".dts-empty")).to_have_text("No step was recorded in this run. What is known stands above.")
        expect(panels.locator("[data-panel=gradients] p")).to_have_text("No step was recorded in this run.")
        expect(panels.locator("[data-panel=gradients] .dts-controls")).to_be_hidden()

    def test_a_damaged_page_says_so(self, page: Page, straggler: Path, tmp_path: Path) -> None:
        text = straggler.read_text()
        place = text.index('id="dtscope-data">') + 5000
        damaged = tmp_path / "damaged.html"
        damaged.write_text(text[:place] + "AAAAAAAA" + text[place + 8 :])
        page.goto(damaged.as_uri())
        expect(page.locator("#dtscope")).to_contain_text("could not be read")


class TestMap:
    def test_only_known_groups_are_offered(self, panels: Locator) -> None:
        options = panels.get_by_label("group by").locator("option:enabled")
        expect(options).to_have_text(["none"])

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
        lab.wait_frame(page)
        canvas.click(position={"x": 90, "y": 26 + 3 * 22 + 10})
        expect(panels.locator("[data-panel=collectives] h3")).to_contain_text("rank 2")


class TestTimeline:
    def test_zoom_search_and_unfold(self, panels: Locator) -> None:
        canvas = panels.locator("[data-panel=timeline] canvas")
        high, whole = canvas.evaluate("c => [c.clientHeight, c.dataset.window]")
        canvas.focus()
        canvas.press("w")
        expect(canvas).not_to_have_attribute("data-window", whole)
        canvas.press("0")
        expect(canvas).to_have_attribute("data-window", whole)
        expect(canvas).to_have_js_property("clientHeight", high)
        panels.get_by_label("find a kernel or host activity").fill("nvjet")
        panels.get_by_label("find a kernel or host activity").press("Enter")
        expect(canvas).not_to_have_js_property("clientHeight", high)
        assert canvas.evaluate("c => c.clientHeight") > high
        panels.get_by_label("find a kernel or host activity").fill("no such kernel")
        panels.get_by_label("find a kernel or host activity").press("Enter")
        expect(panels.locator(".dts-toast")).to_have_text("nothing in this step is called no such kernel")

    def test_wheel_with_control_and_minimap(self, panels: Locator, page: Page) -> None:
        canvas = panels.locator("[data-panel=timeline] canvas")
        box = canvas.bounding_box()
        assert box
        whole = canvas.get_attribute("data-window") or ""
        page.mouse.move(box["x"] + 300, box["y"] + 20)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -240)
        page.keyboard.up("Control")
        expect(canvas).not_to_have_attribute("data-window", whole)
        near = canvas.get_attribute("data-window") or ""
        page.mouse.click(box["x"] + box["width"] - 100, box["y"] + box["height"] - 6)
        expect(canvas).not_to_have_attribute("data-window", near)
        spans = [[float(t) for t in text.split(",")] for text in (whole, near, canvas.get_attribute("data-window") or "")]
        assert spans[1][1] - spans[1][0] < spans[0][1] - spans[0][0]
        assert spans[2][0] > spans[1][0]
        assert abs((spans[2][1] - spans[2][0]) - (spans[1][1] - spans[1][0])) < 0.01
        page.mouse.move(box["x"] + 300, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + 400, box["y"] + 20, steps=4)
        page.mouse.up()
        expect(canvas).not_to_have_attribute("data-window", ",".join(f"{t:.3f}" for t in spans[2]))

    def test_the_keyboard_measures_and_goes_to_a_step(self, panels: Locator) -> None:
        canvas = panels.locator("[data-panel=timeline] canvas")
        canvas.focus()
        canvas.press("w")
        canvas.press("m")
        expect(panels.locator("[data-panel=timeline] .dts-voice")).to_contain_text(re.compile(r"measured [\d.]+ ms"))
        number = panels.get_by_label("step to show")
        number.fill("14")
        number.press("Enter")
        expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 14")
        number.fill("99")
        number.press("Enter")
        expect(panels.locator(".dts-toast")).to_have_text("there is no step 99; the last is 15")

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
        whole = canvas.get_attribute("data-window") or ""
        before = canvas.evaluate("c => c.toDataURL()")
        canvas.evaluate(PINCH, [1, [300, 340]])
        expect(canvas).not_to_have_attribute("data-window", whole)
        assert canvas.evaluate("c => c.toDataURL()") != before
        canvas.evaluate(PINCH, [-1, [300, 340]])
        canvas.evaluate(PINCH, [-1, [300, 340]])
        expect(canvas).to_have_attribute("data-window", whole)

    def test_fingers_on_a_touch_screen_zoom(self, chromium: Browser, straggler: Path) -> None:
        page = chromium.new_context(viewport={"width": 1000, "height": 1400}, has_touch=True).new_page()
        lab.open_file(page, straggler)
        canvas = page.locator("[data-panel=timeline] canvas")
        box, whole = canvas.bounding_box(), canvas.get_attribute("data-window") or ""
        assert box
        devtools = page.context.new_cdp_session(page)

        def touch(kind: str, *places: float) -> None:
            points = [{"x": box["x"] + x, "y": box["y"] + 20, "id": i} for i, x in enumerate(places)]
            devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 300, 340)
        for by in range(10, 110, 10):
            touch("touchMove", 300 - by, 340 + by)
        touch("touchEnd")
        expect(canvas).not_to_have_attribute("data-window", whole)
        page.context.close()


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

    def test_every_hop_to_the_kernel_and_back(self, panels: Locator, page: Page) -> None:
        timeline = panels.locator("[data-panel=timeline] canvas")
        whole = timeline.get_attribute("data-window") or ""
        panels.locator("[data-panel=map] canvas").click(position={"x": 90, "y": 26 + 10})
        expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 13")
        first = panels.locator("[data-panel=collectives] tbody tr").first
        expect(first).to_contain_text("rank 2")
        first.click()
        expect(panels.locator("[data-panel=instead] h3")).to_have_text("What rank 2 did instead")
        panels.locator("[data-panel=instead]").get_by_role("button", name=re.compile("^show nvjet")).click()
        expect(timeline).not_to_have_attribute("data-window", whole)
        expect(panels.get_by_label("find a kernel or host activity")).to_have_value(re.compile("^nvjet"))
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        panels.get_by_label("copy the Python text that shows this place again").click()
        expect(panels.locator(".dts-toast")).to_have_text('copied run.show("timeline", rank=2, step=13)')
        assert page.evaluate("() => navigator.clipboard.readText()") == 'run.show("timeline", rank=2, step=13)'
        for _ in range(3):
            page.keyboard.press("Alt+ArrowLeft")
        expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 15")
        page.keyboard.press("Alt+ArrowRight")
        expect(panels.locator("[data-panel=timeline] h3")).to_have_text("Step 13")

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
        lab.open_file(page, straggler)
        expect(page.locator(".dts")).to_have_attribute("data-theme", theme)

    @pytest.mark.parametrize("width", [420, 560, 1000, 1440, 3840])
    @pytest.mark.parametrize("capture", ["ddp_straggler", "fsdp_healthy"])
    def test_no_text_is_cut_or_covered_at_any_width(self, chromium: Browser, pages: dict[str, Path], capture: str, width: int) -> None:
        page = chromium.new_page(viewport={"width": width, "height": 900})
        page.add_init_script(KEEP_TEXTS)
        lab.open_file(page, pages[capture])
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate(CUT, width >= 560) == []
        for metric in ("exposed", "ratio"):
            page.get_by_label("metric").select_option(metric)
            lab.wait_frame(page)
            assert page.evaluate("() => window.covered()") == []
        page.close()

    def test_every_control_is_reached_by_keyboard_with_visible_focus(self, panels: Locator, page: Page) -> None:
        page.evaluate("() => { document.activeElement.blur(); }")
        count = panels.evaluate(f"root => [...root.querySelectorAll('{CONTROLS}')].filter(e => e.checkVisibility() && !e.disabled).length")
        reached = set()
        for _ in range(count + 5):
            page.keyboard.press("Tab")
            place = page.evaluate(FOCUSED, CONTROLS)
            if place is None:
                break
            assert place["outline"], f"no focus is seen on {place['what']}"
            reached.add(place["place"])
        assert len(reached) == count

    def test_every_control_has_a_name(self, panels: Locator) -> None:
        unnamed = panels.evaluate(
            """root => [...root.querySelectorAll('button, select, input, canvas[tabindex], summary')]
                 .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim()))
                 .map(e => e.outerHTML)"""
        )
        assert unnamed == []
