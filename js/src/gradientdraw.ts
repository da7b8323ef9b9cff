// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Draws the gradient map. Pure: everything comes in, strokes go out.
import { number } from "./format";
import { GRADIENT_METRICS, type GradientMetric, type Node } from "./gradients";
import type { Colors } from "./palette";
import { fitted, type Pen } from "./pen";
import { css, inkOn, ramp } from "./scales";

export const HIGH = 20;
export const TOP = 22;
const LEGEND = 26;

export interface GradientState {
  readonly nodes: readonly Node[];
  readonly folded: ReadonlySet<string>;
  readonly ranks: readonly number[];
  /** Node by node, rank by rank. */
  readonly values: Float64Array;
  readonly metric: GradientMetric;
  /** The chosen line and rank. */
  readonly line: number;
  readonly rank: number | null;
}

export interface Grid {
  readonly left: number;
  readonly cell: number;
}

export function gradientHeight(lines: number): number {
  return TOP + lines * HIGH + LEGEND;
}

/** Where the cells lie: the names have the room that they need, up to a third. */
export function gradientGrid(pen: Pen, width: number, s: GradientState): Grid {
  const names = s.nodes.map((n) => pen.measure(n.label) + n.depth * 12 + 26);
  const left = Math.min(Math.max(120, width * 0.36), Math.max(96, ...names));
  return { left, cell: Math.min(160, (width - left - 4) / Math.max(1, s.ranks.length)) };
}

/** The line and the place in `ranks` under a point; -1 for what is outside. */
export function gradientHit(g: Grid, s: GradientState, x: number, y: number): { line: number; column: number } {
  const line = Math.floor((y - TOP) / HIGH);
  const column = x < g.left ? -1 : Math.floor((x - g.left) / g.cell);
  return { line: line >= 0 && line < s.nodes.length ? line : -1, column: column < s.ranks.length ? column : -1 };
}

export function drawGradients(pen: Pen, width: number, s: GradientState, colors: Colors): Grid {
  const g = gradientGrid(pen, width, s);
  const scale = scaleOf(s.values, GRADIENT_METRICS[s.metric].log);
  drawHead(pen, g, s, colors);
  s.nodes.forEach((node, n) => {
    const y = TOP + n * HIGH;
    drawName(pen, g, node, n, y, s, colors);
    s.ranks.forEach((_, r) => {
      const v = s.values[n * s.ranks.length + r];
      if (Number.isNaN(v)) return;
      const color = ramp(colors.cost, scale.place(v));
      pen.rect(g.left + r * g.cell, y + 1, g.cell > 6 ? g.cell - 3 : g.cell, HIGH - 3, css(color));
      if (g.cell > 46)
        pen.text(Number.isFinite(v) ? number(v) : "NaN", g.left + (r + 0.5) * g.cell - 1.5, y + HIGH / 2, {
          fill: inkOn(color),
          align: "center",
          size: 11,
        });
    });
  });
  drawLegend(pen, g, s, scale, colors);
  return g;
}

function drawHead(pen: Pen, g: Grid, s: GradientState, colors: Colors): void {
  const every = Math.max(1, Math.ceil(46 / g.cell));
  s.ranks.forEach((rank, r) => {
    const chosen = rank === s.rank;
    if (r % every && !chosen) return;
    const near = s.rank === null ? -1 : s.ranks.indexOf(s.rank);
    if (every > 1 && !chosen && near >= 0 && Math.abs(near - r) < every) return;
    const x = g.left + (r + 0.5) * g.cell - 1.5;
    const wide = pen.measure(`rank ${rank}`, { size: 11 });
    const at = Math.max(g.left + wide / 2 - 2, x);
    pen.text(`rank ${rank}`, at, TOP - 10, {
      fill: chosen ? colors.ink : colors.quiet,
      align: "center",
      size: 11,
      weight: chosen ? 700 : 400,
    });
  });
}

function drawName(pen: Pen, g: Grid, node: Node, n: number, y: number, s: GradientState, colors: Colors): void {
  if (n === s.line) pen.rect(0, y + 1, g.left - 4, HIGH - 3, colors.idle);
  const indent = 6 + node.depth * 12;
  if (!node.leaf) pen.text(s.folded.has(node.path) ? "▸" : "▾", indent, y + HIGH / 2, { fill: colors.quiet, size: 11 });
  const text = fitted(pen, node.label, g.left - indent - 20);
  pen.text(text, indent + 13, y + HIGH / 2, { fill: node.leaf ? colors.quiet : colors.ink });
}

function drawLegend(pen: Pen, g: Grid, s: GradientState, scale: Scale, colors: Colors): void {
  if (!(scale.high > 0)) return;
  const y = TOP + s.nodes.length * HIGH + 14;
  const { unit, log } = GRADIENT_METRICS[s.metric];
  const low = number(scale.low);
  let x = g.left;
  pen.text(low, x, y, { fill: colors.quiet });
  x = Math.round(x + pen.measure(low) + 7);
  for (let i = 0; i < 96; i += 2) {
    const value = log ? scale.low * (scale.high / scale.low) ** (i / 96) : scale.low + ((scale.high - scale.low) * i) / 96;
    // To the end, as edges between pixels would show.
    pen.rect(x + i, y - 4, 96 - i, 8, css(ramp(colors.cost, scale.place(value))));
  }
  pen.text(`${number(scale.high)}${unit ? ` ${unit}` : ""}${log ? " · log" : ""}`, x + 103, y, { fill: colors.quiet });
}

export interface Scale {
  readonly low: number;
  readonly high: number;
  /** Place on the ramp. */
  place(value: number): number;
}

/** Between the smallest and largest positive value; zero is blank, what is infinite is strong. */
export function scaleOf(cells: Float64Array, log: boolean): Scale {
  let [low, high] = [Number.POSITIVE_INFINITY, 0];
  for (const v of cells) {
    if (!(v > 0 && Number.isFinite(v))) continue;
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  if (!high) return { low: 0, high: 0, place: (v) => (Number.isFinite(v) ? 0 : 1) };
  if (!log) return { low: 0, high, place: (v) => (Number.isFinite(v) ? 0.1 + 0.75 * (v / high) : 1) };
  const wide = Math.max(Math.log10(high / low), 1);
  return { low, high, place: (v) => (v === 0 ? 0 : Number.isFinite(v) ? 0.15 + 0.7 * (1 - Math.log10(high / v) / wide) : 1) };
}
