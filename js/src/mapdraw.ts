// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Draws the rank x step map. Pure: everything comes in, strokes go out.
import { digitsFor, fixed, integer } from "./format";
import type { Geometry, MapState } from "./mapgeometry";
import { drawLegend } from "./maplegend";
import { paintImage } from "./mapraster";
import { RIGHT } from "./margins";
import { costs } from "./metrics";
import { type Colors, costLookup, costStroke } from "./palette";
import { fitted, type Pen } from "./pen";
import { ticks } from "./scales";

export function drawMap(pen: Pen, g: Geometry, s: MapState, colors: Colors, ratio: number, image: () => HTMLCanvasElement): void {
  drawTop(pen, g, s, colors);
  if (g.cell >= 4 && (s.to - s.from) * s.order.length <= 6000) drawCells(pen, g, s, colors);
  else drawRaster(pen, g, s, colors, ratio, image());
  drawMeans(pen, g, s, colors);
  drawRows(pen, g, s, colors);
  drawBlocks(pen, g, s, colors);
  drawAxis(pen, g, s, colors);
  drawLegend(pen, g, s, colors);
  drawSlowed(pen, g, s, colors);
  drawMarks(pen, g, s, colors);
}

function drawTop(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const high = g.top - 6;
  const bar = Math.max(1, g.cell);
  const bars = Math.round(Math.min(g.width, (s.to - s.from) * g.cell) / bar);
  const of = costs(s.metric, s.range);
  const stroke = costStroke(colors);
  // Counted, not summed up: the sum of 80 widths may fall short of the column that it should have reached.
  const column = (k: number) => s.from + (bar > 1 ? k : Math.floor(k / g.cell));
  for (let k = 0; k < bars; k++) {
    const p = k * bar;
    const from = column(k);
    const to = Math.max(from + 1, column(k + 1));
    let worst = Number.NaN;
    for (let c = from; c < to && c < s.columnMeans.length; c++) {
      const t = of(s.columnMeans[c]);
      if (!(t <= worst)) worst = Number.isNaN(t) ? worst : t;
    }
    if (!(worst > 0)) continue;
    const tall = Math.max(1, worst * (high - 2));
    pen.rect(g.left + p, high - tall, Math.max(0.5, bar - (bar > 4 ? 1 : 0)), tall, stroke(0.25 + 0.6 * worst));
  }
}

function drawCells(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const gap = g.row >= 12 ? 2 : g.row >= 6 ? 1 : 0;
  const grid = s.matrix.pyramids[s.metric].levels[0];
  const of = costs(s.metric, s.range);
  const stroke = costStroke(colors);
  s.order.forEach((row, i) => {
    for (let c = s.from; c < s.to; c++) {
      const v = grid.get(row, c);
      if (Number.isNaN(v)) continue;
      const t = of(v);
      const x = g.left + (c - s.from) * g.cell;
      pen.rect(x, g.top + i * g.row, g.cell - 1, g.row - gap, stroke(t));
      if (g.row >= 8 && s.matrix.marked(row, c)) {
        pen.circle(x + (g.cell - 1) / 2, g.top + i * g.row + (g.row - gap) / 2, 1.3, t > 0.55 ? colors.paper : colors.quiet);
      }
    }
  });
  if (g.row < 8) drawSampled(pen, g, s, colors);
}

function drawRaster(pen: Pen, g: Geometry, s: MapState, colors: Colors, ratio: number, image: HTMLCanvasElement): void {
  const columns = s.to - s.from;
  const wide = g.cell * columns;
  const w = Math.max(1, Math.min(columns, Math.round(wide * ratio)));
  const h = Math.max(1, Math.min(s.order.length, Math.round(g.height * ratio)));
  paintImage(image, w, h, s, costLookup(colors));
  pen.raster(image, g.left, g.top, wide, g.height);
  if (g.row >= 6) for (let i = 1; i < s.order.length; i++) pen.rect(g.left, g.top + i * g.row - 1, wide, 1, colors.paper);
  drawSampled(pen, g, s, colors);
}

/** Where cells are too small for dots: dots under the columns that the first rank has exact, unless they would make a line. */
function drawSampled(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  if (!s.matrix.exactBy || !s.order.length) return;
  let edge = Number.NEGATIVE_INFINITY;
  for (let c = s.from; c < s.to; c++) {
    if (!s.matrix.marked(s.order[0], c)) continue;
    const x = g.left + (c - s.from + 0.5) * g.cell;
    if (x - edge < 5) continue;
    pen.circle(x, g.top + g.height + 3, 1.2, colors.quiet);
    edge = x;
  }
}

/** A line under steps that a probe of ours slowed. */
function drawSlowed(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  for (const step of s.matrix.slowed) {
    const c = s.matrix.column(step) - s.from;
    if (c >= 0 && c < s.to - s.from) pen.rect(g.left + c * g.cell, g.top + g.height + 1, Math.max(1, g.cell - 1), 2, colors.accent);
  }
}

/** Beside each row its mean: a bar as long as it is dear, with the number where rows are high enough. */
function drawMeans(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const of = costs(s.metric, s.range);
  const stroke = costStroke(colors);
  const left = g.left + g.width + 6;
  const share = new Float32Array(Math.max(1, Math.min(s.order.length, Math.ceil(g.height))));
  s.order.forEach((row, i) => {
    const at = Math.floor((i * share.length) / s.order.length);
    const t = of(s.rowMeans[row]);
    if (t > share[at]) share[at] = t;
  });
  const row = g.height / share.length;
  const most = RIGHT - (row >= 12 ? 42 : 10);
  const gap = row >= 12 ? 2 : row >= 6 ? 1 : 0;
  const wide = (i: number) => (share[i] > 0.01 ? Math.max(1, Math.round(share[i] * most)) : 0);
  for (let i = 0; i < share.length; ) {
    // Thin rows of one length are one stroke.
    let next = i + 1;
    while (gap === 0 && next < share.length && wide(next) === wide(i)) next++;
    const strength = row >= 12 ? 0.12 + 0.12 * share[i] : 0.25 + 0.6 * share[i];
    if (wide(i)) pen.rect(left, g.top + i * row, wide(i), (next - i) * row - gap, stroke(strength));
    i = next;
  }
  pen.text("mean", g.left + g.width + RIGHT - 4, g.top - 12, { fill: colors.quiet, align: "right", size: 11 });
}

function drawRows(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const blamed = new Set(s.findings.filter((f) => f.severity !== "info").flatMap((f) => f.ranks));
  const chosenAt = s.rank === null ? -1 : s.order.findIndex((r) => s.matrix.ranks[r] === s.rank);
  const every = Math.max(1, Math.ceil(14 / g.row));
  const digits = digitsFor(s.rowMeans);
  s.order.forEach((row, i) => {
    const rank = s.matrix.ranks[row];
    const y = g.top + (i + 0.5) * g.row - (g.row >= 12 ? 1 : 0);
    const chosen = i === chosenAt;
    if (blamed.has(rank) && (every === 1 || blamed.size <= 8)) pen.text("▸", g.left - LABEL, y, { fill: colors.warning, weight: 700 });
    if (i % every && !chosen) return;
    if (every > 1 && !chosen && chosenAt >= 0 && Math.abs(i - chosenAt) * g.row < 12) return;
    const fill = chosen ? colors.ink : colors.quiet;
    pen.text(`rank ${rank}`, g.left - 10, y, { fill, align: "right", weight: chosen ? 700 : 400 });
    if (g.row >= 12) pen.text(fixed(s.rowMeans[row], digits), g.left + g.width + RIGHT - 4, y, { fill: colors.ink, align: "right" });
  });
}

/** Where a rank's mark lies, left of the cells. */
const LABEL = 78;

/** The names of hosts or groups beside their ranks, as many as have room, and a line between one and the next. */
function drawBlocks(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  if (!g.gutter) return;
  const starts = [...s.blocks.keys()].sort((a, b) => a - b);
  pen.text(s.blockKind, 4, g.top - 12, { fill: colors.quiet, size: 11 });
  let edge = Number.NEGATIVE_INFINITY;
  starts.forEach((from, k) => {
    const to = starts[k + 1] ?? s.order.length;
    const [top, bottom] = [g.top + from * g.row, g.top + to * g.row];
    if (from && (to - from) * g.row >= 4) {
      // Not through the names of ranks.
      pen.rect(4, top - 1, g.gutter - 8, 1, colors.rule);
      pen.rect(g.left, top - 1, g.width, 1, colors.rule);
    }
    const y = Math.min((top + bottom) / 2, top + 11);
    if (y - edge < 13) return;
    pen.text(fitted(pen, s.blocks.get(from)!, g.gutter - 8), 4, y, { fill: colors.ink });
    edge = y;
  });
}

function drawAxis(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const [first, last] = [s.matrix.stepAt(s.from), s.matrix.stepAt(s.to)];
  const wide = (s.to - s.from) * g.cell;
  let edge = -1;
  pen.text("step", g.left - 10, g.axis, { fill: colors.quiet, align: "right" });
  for (const step of ticks(first, last - 1, Math.max(2, Math.min(16, wide / 70)))) {
    if (!Number.isInteger(step)) continue;
    const x = g.left + ((step - first) / s.matrix.stride + 0.5) * g.cell;
    const text = integer(step);
    if (x - pen.measure(text) / 2 < edge) continue;
    pen.text(text, x, g.axis, { fill: colors.quiet, align: "center" });
    edge = x + pen.measure(text);
  }
}

function drawMarks(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  for (const f of s.findings) {
    if (!f.steps.length || f.severity === "info") continue;
    const from = s.matrix.column(Math.min(...f.steps)) - s.from;
    const x = g.left + from * g.cell;
    if (from >= 0 && x <= g.left + g.width) pen.line([x, g.top - 5, x, g.top + g.height + 3], colors.warning, 1, [3, 2]);
  }
  if (s.step !== null) {
    const c = s.matrix.column(s.step) - s.from;
    const wide = Math.max(3, g.cell);
    const x = g.left + c * g.cell;
    if (c >= 0 && x <= g.left + g.width) pen.frame(x - 1.5, g.top - 2.5, wide + 2, g.height + 3, colors.select, 1.5);
  }
  if (s.hover) {
    const x = g.left + (s.hover.column - s.from) * g.cell;
    pen.frame(x - 0.5, g.top + s.hover.row * g.row - 0.5, Math.max(3, g.cell), Math.max(3, g.row - 1), colors.quiet, 1);
  }
}
