// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Draws the rank x step map. Pure: everything comes in, strokes go out.
import type { Finding } from "./finding";
import { integer, number, round } from "./format";
import type { StepMatrix } from "./matrix";
import { blankEnd, cost, costs, METRICS, type MetricName, type Range, strongEnd } from "./metrics";
import { type Colors, costLookup } from "./palette";
import type { Pen } from "./pen";
import { css, ramp, ticks } from "./scales";

export const LEFT = 84;
export const RIGHT = 62;
const TOP = 26;
const BOTTOM = 26;

export interface MapState {
  readonly matrix: StepMatrix;
  readonly metric: MetricName;
  readonly range: Range;
  /** Rows of the matrix from top to bottom, with the name of the block each begins, if any. */
  readonly order: readonly number[];
  readonly blocks: ReadonlyMap<number, string>;
  /** Columns shown, [from, to). */
  readonly from: number;
  readonly to: number;
  readonly columnMeans: Float32Array;
  readonly rowMeans: Float32Array;
  readonly findings: readonly Finding[];
  readonly step: number | null;
  readonly rank: number | null;
  readonly hover: { row: number; column: number } | null;
}

export interface Geometry {
  readonly left: number;
  readonly top: number;
  readonly cell: number;
  readonly row: number;
  readonly width: number;
  readonly height: number;
  readonly total: number;
}

/** Where everything lies for a width and number of ranks; few ranks make a strip, many a map of bounded height. */
export function geometry(width: number, ranks: number, columns: number, widest: number): Geometry {
  const plot = Math.max(60, width - LEFT - RIGHT);
  const row = ranks <= 8 ? 22 : ranks <= 24 ? 15 : Math.max(0.25, Math.min(10, 420 / ranks));
  const height = Math.max(22, Math.round(row * ranks));
  return {
    left: LEFT,
    top: TOP,
    row,
    height,
    width: plot,
    total: TOP + height + BOTTOM,
    cell: Math.min(widest, plot / Math.max(1, columns)),
  };
}

/** The row (place in the order) and column under a point; null outside. */
export function hit(
  g: Geometry,
  state: Pick<MapState, "from" | "to" | "order">,
  x: number,
  y: number,
): { row: number; column: number } | null {
  const row = Math.floor((y - g.top) / g.row);
  const column = state.from + Math.floor((x - g.left) / g.cell);
  if (row < 0 || row >= state.order.length || x < g.left || column >= state.to || column < state.from) return null;
  return { row, column };
}

export function drawMap(pen: Pen, g: Geometry, s: MapState, colors: Colors, ratio: number, image: () => HTMLCanvasElement): void {
  drawTop(pen, g, s, colors);
  if (g.cell >= 4 && (s.to - s.from) * s.order.length <= 6000) drawCells(pen, g, s, colors);
  else drawRaster(pen, g, s, colors, ratio, image());
  drawRows(pen, g, s, colors);
  drawAxis(pen, g, s, colors);
  drawMarks(pen, g, s, colors);
}

function drawTop(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const high = g.top - 6;
  const bar = Math.max(1, g.cell);
  const bars = Math.round(Math.min(g.width, (s.to - s.from) * g.cell) / bar);
  const of = costs(s.metric, s.range);
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
    pen.rect(g.left + p, high - tall, Math.max(0.5, bar - (bar > 4 ? 1 : 0)), tall, css(ramp(colors.cost, 0.25 + 0.6 * worst)));
  }
}

function drawCells(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const gap = g.row >= 12 ? 2 : g.row >= 6 ? 1 : 0;
  const grid = s.matrix.pyramids[s.metric].levels[0];
  const of = costs(s.metric, s.range);
  s.order.forEach((row, i) => {
    for (let c = s.from; c < s.to; c++) {
      const v = grid.get(row, c);
      if (Number.isNaN(v)) continue;
      const t = of(v);
      const x = g.left + (c - s.from) * g.cell;
      pen.rect(x, g.top + i * g.row, g.cell - 1, g.row - gap, css(ramp(colors.cost, t)));
      if (g.row >= 8 && s.matrix.exact.get(row, c) === 1) {
        pen.circle(x + (g.cell - 1) / 2, g.top + i * g.row + (g.row - gap) / 2, 1.3, t > 0.55 ? colors.paper : colors.quiet);
      }
    }
  });
}

function drawRaster(pen: Pen, g: Geometry, s: MapState, colors: Colors, ratio: number, image: HTMLCanvasElement): void {
  const columns = s.to - s.from;
  const wide = g.cell * columns;
  const w = Math.max(1, Math.min(columns, Math.round(wide * ratio)));
  const h = Math.max(1, Math.min(s.order.length, Math.round(g.height * ratio)));
  image.width = w;
  image.height = h;
  const context = image.getContext("2d")!;
  const data = context.createImageData(w, h);
  paintPixels(new Uint32Array(data.data.buffer), w, h, s, costLookup(colors));
  context.putImageData(data, 0, 0);
  pen.raster(image, g.left, g.top, wide, g.height);
  if (g.row >= 6) for (let i = 1; i < s.order.length; i++) pen.rect(g.left, g.top + i * g.row - 1, wide, 1, colors.paper);
}

/** Rows of the map merged to those of a picture at one level of detail; kept while a user pans and zooms. */
interface Bins {
  readonly key: string;
  readonly order: readonly number[];
  readonly data: Float32Array;
  readonly columns: number;
  /** Place in the table of colours plus 1, 0 where unknown: what is worse has the higher place, so that places compare as values do. */
  places: { range: MapState["range"]; of: Uint16Array } | null;
}

const kept = new WeakMap<StepMatrix, Bins>();

/** The worst of the ranks that fall into each of `h` rows; unknown is minus infinity, and low costs are negated. */
function binned(s: MapState, h: number, level: number): Bins {
  const pyramid = s.matrix.pyramids[s.metric];
  const grid = pyramid.levels[level];
  const key = [s.metric, s.matrix.version, level, h].join();
  const old = kept.get(s.matrix);
  if (old?.key === key && old.order === s.order) return old;
  const sign = pyramid.worse === "high" ? 1 : -1;
  const data = new Float32Array(h * grid.columns).fill(Number.NEGATIVE_INFINITY);
  s.order.forEach((row, i) => {
    if (row >= grid.rows) return;
    const [from, to] = [row * grid.capacity, Math.floor((i * h) / s.order.length) * grid.columns];
    for (let c = 0; c < grid.columns; c++) {
      // No comparison with NaN is true, so unknown cells never win.
      const v = sign * grid.data[from + c];
      if (v > data[to + c]) data[to + c] = v;
    }
  });
  const bins: Bins = { key, order: s.order, data, columns: grid.columns, places: null };
  kept.set(s.matrix, bins);
  return bins;
}

function placesOf(bins: Bins, s: MapState): Uint16Array {
  if (bins.places?.range === s.range) return bins.places.of;
  const sign = METRICS[s.metric].worse === "high" ? 1 : -1;
  const cost = costs(s.metric, s.range);
  const of = new Uint16Array(bins.data.length);
  for (let k = 0; k < of.length; k++) {
    const v = bins.data[k];
    if (v > Number.NEGATIVE_INFINITY) of[k] = 1 + Math.round(cost(sign * v) * 255);
  }
  bins.places = { range: s.range, of };
  return of;
}

/** One pixel for each part of the map, the worst of what falls into it. */
export function paintPixels(pixels: Uint32Array, w: number, h: number, s: MapState, table: Uint32Array): void {
  const columns = s.to - s.from;
  const level = Math.max(0, Math.min(Math.floor(Math.log2(columns / w)) - 1, s.matrix.pyramids[s.metric].levels.length - 1));
  const bins = binned(s, h, level);
  const places = placesOf(bins, s);
  const edges = Int32Array.from({ length: w + 1 }, (_, x) => s.from + Math.floor((x * columns) / w));
  const firsts = Int32Array.from({ length: w }, (_, x) => edges[x] >> level);
  const ends = Int32Array.from({ length: w }, (_, x) => Math.max(firsts[x] + 1, Math.min(bins.columns, ((edges[x + 1] - 1) >> level) + 1)));
  for (let y = 0; y < h; y++) {
    const row = y * bins.columns;
    for (let x = 0; x < w; x++) {
      let worst = 0;
      for (let k = row + firsts[x]; k < row + ends[x]; k++) if (places[k] > worst) worst = places[k];
      if (worst) pixels[y * w + x] = table[worst - 1];
    }
  }
}

function drawRows(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const blamed = new Set(s.findings.filter((f) => f.severity !== "info").flatMap((f) => f.ranks));
  const every = Math.max(1, Math.ceil(14 / g.row));
  s.order.forEach((row, i) => {
    const rank = s.matrix.ranks[row];
    const y = g.top + (i + 0.5) * g.row - (g.row >= 12 ? 1 : 0);
    const chosen = rank === s.rank;
    const block = s.blocks.get(i);
    if (block !== undefined && i) pen.rect(4, g.top + i * g.row - 1, g.left + g.width - 4, 1, colors.rule);
    if (i % every && !chosen) return;
    if (every > 1 && !chosen && s.rank !== null && Math.abs(i - s.order.findIndex((r) => s.matrix.ranks[r] === s.rank)) * g.row < 12)
      return;
    const fill = chosen ? colors.ink : colors.quiet;
    pen.text(`rank ${rank}`, g.left - 10, y, { fill, align: "right", weight: chosen ? 700 : 400 });
    if (blamed.has(rank)) pen.text("▸", 6, y, { fill: colors.warning, weight: 700 });
    if (g.row >= 12) pen.text(number(s.rowMeans[row]), g.left + g.width + RIGHT - 4, y, { fill, align: "right" });
  });
  if (g.row >= 12) pen.text("mean", g.left + g.width + RIGHT - 4, g.top - 12, { fill: colors.quiet, align: "right", size: 11 });
}

function drawAxis(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const y = g.top + g.height + 13;
  const [first, last] = [s.matrix.stepAt(s.from), s.matrix.stepAt(s.to)];
  let edge = -1;
  for (const step of ticks(first, last - 1, Math.max(2, Math.min(8, ((s.to - s.from) * g.cell) / 70)))) {
    if (!Number.isInteger(step)) continue;
    const x = g.left + ((step - first) / s.matrix.stride + 0.5) * g.cell;
    const text = integer(step);
    if (x - pen.measure(text) / 2 < edge || x > g.left + g.width - (s.matrix.exact.columns > 0 ? 310 : 195)) continue;
    pen.text(text, x, y, { fill: colors.quiet, align: "center" });
    edge = x + pen.measure(text);
  }
  drawLegend(pen, g.left + g.width, y, s, colors);
}

function drawLegend(pen: Pen, right: number, y: number, s: MapState, colors: Colors): void {
  const unit = METRICS[s.metric].unit;
  const [blank, strong] = [blankEnd(s.metric, s.range), strongEnd(s.metric, s.range)];
  const beyond = METRICS[s.metric].worse === "high" && s.range.largest > strong ? "+" : "";
  const high = `${round(strong)}${beyond}${unit ? ` ${unit}` : ""}`;
  const x = right - pen.measure(high);
  pen.text(high, x, y, { fill: colors.quiet });
  if (s.matrix.exact.columns > 0) {
    const text = "exact (profiled)";
    const at = x - 60 - 96 - pen.measure(text);
    pen.circle(at - 8, y, 1.6, colors.quiet);
    pen.text(text, at, y, { fill: colors.quiet });
  }
  const wide = 96;
  for (let i = 0; i < wide; i += 2) {
    const value = blank + ((strong - blank) * i) / wide;
    pen.rect(x - 8 - wide + i, y - 4, 2, 8, css(ramp(colors.cost, cost(s.metric, value, s.range))));
  }
  pen.text(round(blank), x - 14 - wide, y, { fill: colors.quiet, align: "right" });
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
