// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Colours: one palette for widget, picture and figures; which of its themes holds is read from JupyterLab.
import palette from "../../dtscope_jupyter/view/palette.json";
import { css, hex, lookup, luminance, ramp } from "./scales";

export type Theme = keyof typeof palette;
export type Colors = (typeof palette)["light"];

/** The theme of the page around an element. */
export function themeOf(element: Element): Theme {
  const named = element.ownerDocument.body.dataset.jpThemeName ?? "";
  if (/high contrast/i.test(named) || matchMedia("(prefers-contrast: more)").matches) {
    return isDark(element) ? "high_contrast" : "light";
  }
  return isDark(element) ? "dark" : "light";
}

function isDark(element: Element): boolean {
  const light = element.ownerDocument.body.dataset.jpThemeLight;
  if (light !== undefined) return light === "false";
  const paper = getComputedStyle(element).getPropertyValue("--jp-layout-color0").trim();
  if (/^#[0-9a-f]{6}$/i.test(paper)) return luminance(hex(paper)) < 0.3;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colorsOf(theme: Theme): Colors {
  return palette[theme];
}

/** Sets the palette as CSS variables --dts-NAME on the root. */
export function paint(root: HTMLElement, theme: Theme): Colors {
  const colors = palette[theme];
  for (const [name, value] of Object.entries(colors)) {
    if (typeof value === "string") root.style.setProperty(`--dts-${name}`, value);
  }
  root.dataset.theme = theme;
  return colors;
}

const lookups = new Map<string, Uint32Array>();
const strokes = new Map<string, string[]>();

/** 256 pixels of the cost ramp of a theme. */
export function costLookup(colors: Colors): Uint32Array {
  const key = colors.cost.join();
  let table = lookups.get(key);
  if (!table) {
    table = lookup(colors.cost);
    lookups.set(key, table);
  }
  return table;
}

/** The colour of a place on the cost ramp of a theme, as CSS has it; made once. */
export function costStroke(colors: Colors): (t: number) => string {
  const key = colors.cost.join();
  const made = strokes.get(key) ?? Array.from({ length: 256 }, (_, i) => css(ramp(colors.cost, i / 255)));
  strokes.set(key, made);
  return (t) => made[Math.round(Math.min(Math.max(t, 0), 1) * 255)];
}
