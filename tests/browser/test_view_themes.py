# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""JupyterLab's own themes, changed under panels that are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser import lab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PALETTE: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "dtscope_jupyter" / "view" / "palette.json").read_text(encoding="utf-8")
)
THEMES = {
    "JupyterLab Light": ("light", 4.5),
    "JupyterLab Dark": ("dark", 4.5),
    "JupyterLab Dark High Contrast": ("high_contrast", 7),
}
"""Our theme for each, and the contrast that WCAG 2 asks of text: AA, of high contrast AAA."""
CHANGE = "name => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name })"
FAINT = """([root, least]) => {
  const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const paper = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (color !== 'transparent' && parse(color)[3] !== 0 && !color.includes('color(')) return parse(color);
    }
    return [255, 255, 255];
  };
  const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const shown = e => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.dts-voice');
  return [...root.querySelectorAll('*')].filter(e => own(e) && shown(e) && !e.disabled).flatMap(e => {
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(paper(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    return ratio < least ? [`${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}: ${ratio.toFixed(1)}`] : [];
  });
}"""
HOLDS = """(canvas, color) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const wanted = parseInt(color.slice(1), 16);
  for (let i = 0; i < data.length; i += 4) {
    if (((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]) === wanted && data[i + 3] === 255) return true;
  }
  return false;
}"""


@pytest.fixture
def panels(page: Page, jupyterlab: lab.Server, captures: Path, tmp_path: Path) -> Locator:
    opened = f"import dtscope_jupyter as dts\nrun = dts.open({str(captures / 'h200' / 'ddp_straggler')!r})"
    alone = "from dtscope_jupyter.view import offline\nfrom dtscope_jupyter.view.widget import Panels"
    shown = "Panels(world_size=4, live=False, snapshot=offline.message(run, offline.SHOW_BYTES).pack())"
    lab.open_notebook(page, jupyterlab, jupyterlab.notebook(f"{tmp_path.name}.ipynb", f"{opened}\n{alone}\n{shown}"))
    lab.run_cell(page, 0)
    lab.wait_cell(page, 0)
    lab.wait_colours(page.locator("[data-panel=timeline] canvas"))
    return page.locator(".dts")


def test_panels_take_the_colours_of_the_theme_at_once(page: Page, panels: Locator) -> None:
    try:
        for name, (ours, least) in THEMES.items():
            page.evaluate(CHANGE, name)
            expect(panels).to_have_attribute("data-theme", ours)
            page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
            lab.wait_frame(page)
            for panel, color in (("map", PALETTE[ours]["cost"][0]), ("timeline", PALETTE[ours]["exposed"])):
                canvas = panels.locator(f"[data-panel={panel}] canvas")
                page.wait_for_function(f"([canvas, color]) => ({HOLDS})(canvas, color)", arg=[canvas.element_handle(), color])
                assert not any(canvas.evaluate(HOLDS, PALETTE[other]["exposed"]) for other, _ in THEMES.values() if other != ours)
            assert panels.evaluate(f"(root, least) => ({FAINT})([root, least])", least) == []
    finally:
        page.evaluate(CHANGE, "JupyterLab Light")
        page.wait_for_function("() => document.body.dataset.jpThemeName === 'JupyterLab Light'")
