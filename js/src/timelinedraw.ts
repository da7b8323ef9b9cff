// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Draws the lanes of a step. Pure: everything comes in, strokes go out.
import type { Collective } from "./collectives";
import { duration, fixed, round } from "./format";
import { firstAfter, type Intervals, total } from "./intervals";
import { firstVisible, laneRows, type SpanRow } from "./lanerows";
import { Occupancy } from "./lod";
import { AXIS, LEFT, plotWidth, RIGHT } from "./margins";
import type { Colors } from "./palette";
import { fitted, type Pen } from "./pen";
import { Linear, ticks } from "./scales";
import type { Lane, Span, StepView } from "./stepview";

const TOP = 6;
const MINIMAP = 16;
const ROW = 14;

export interface LaneBox {
  readonly lane: Lane;
  readonly y: number;
  /** Height of the compute bar, and of the comm bar under it. */
  readonly thick: number;
  readonly thin: number;
  readonly rows: readonly SpanRow[];
  readonly height: number;
}

export interface Layout {
  readonly boxes: readonly LaneBox[];
  readonly plot: number;
  readonly axis: number;
  readonly total: number;
}

export interface TimelineState {
  readonly view: StepView;
  readonly from: number;
  readonly to: number;
  readonly rank: number | null;
  readonly chosen: Collective | null;
  readonly measure: readonly [number, number] | null;
  readonly search: string;
  readonly uncertainty: number;
}

/** Places the lanes; more ranks make thinner lanes, unfolded ones get rows of compute, comm, copies and host. */
export function layout(width: number, view: StepView, lanes: readonly Lane[], unfolded: ReadonlySet<number>): Layout {
  const pitch = Math.max(11, Math.min(38, 400 / Math.max(1, lanes.length)));
  const thick = Math.round(pitch * 0.5);
  const thin = Math.max(4, Math.round(pitch * 0.3));
  let y = TOP;
  const boxes: LaneBox[] = [];
  for (const lane of lanes) {
    const rows = unfolded.has(lane.rank) ? laneRows(lane, view) : [];
    const height = pitch + rows.length * ROW + (rows.length ? 6 : 0);
    boxes.push({ lane, y, thick, thin, rows, height });
    y += height;
  }
  return { boxes, plot: plotWidth(width), axis: y, total: y + AXIS + MINIMAP };
}

export function drawTimeline(pen: Pen, l: Layout, s: TimelineState, colors: Colors): void {
  const x = new Linear(s.from, s.to, LEFT, LEFT + l.plot);
  pen.within(LEFT, 0, l.plot, l.axis, () => {
    for (const box of l.boxes) drawLane(pen, box, x, s, colors);
  });
  for (const box of l.boxes) drawLabel(pen, box, l, s, colors);
  drawAxis(pen, l, x, s, colors);
  drawMinimap(pen, l, s, colors);
  if (s.chosen) drawThread(pen, l, x, s.chosen, s, colors);
  if (s.measure) drawMeasure(pen, l, x, s.measure, colors);
}

function drawLane(pen: Pen, box: LaneBox, x: Linear, s: TimelineState, colors: Colors): void {
  const { lane, y, thick, thin } = box;
  const [left, right] = [Math.max(x.at(lane.start), LEFT), Math.min(x.at(lane.end), x.high)];
  const under = y + thick + 1;
  if (right > left) {
    pen.rect(left, y, right - left, thick, colors.idle);
    pen.rect(left, under, right - left, thin, colors.idle);
  }
  drawMostly(pen, lane.compute, x, y, thick, colors.compute, s);
  if (lane.other.length) drawSet(pen, lane.other, x, y + thick - 3, 3, colors.quiet, s, 0);
  drawComm(pen, lane, x, under, thin, colors, s);
  box.rows.forEach((row, i) => drawSpans(pen, row, x, under + thin + 4 + i * ROW, s, colors));
}

const occupancies = new WeakMap<Intervals, Occupancy>();
const shares = new Float32Array(4096);

const commShares = new Float32Array(8192);
const exposedShares = new Float32Array(8192);

/**
 * Communication, each half pixel in the colour of what most of it is: thousands of gaps of microseconds between kernels
 * would otherwise all show, each wider than it is.
 */
function drawComm(pen: Pen, lane: Lane, x: Linear, y: number, high: number, colors: Colors, s: TimelineState): void {
  const pixels = Math.min(commShares.length, Math.floor(x.high - x.low) * 2);
  const comm = filled(lane.comm, x, commShares.subarray(0, pixels), s);
  const exposed = filled(lane.exposed, x, exposedShares.subarray(0, pixels), s);
  const width = (x.high - x.low) / pixels;
  const kind = (p: number) => (comm[p] < 0.08 ? 0 : exposed[p] > 0.5 * comm[p] ? 2 : 1);
  for (let p = 0; p < pixels; ) {
    const k = kind(p);
    let q = p + 1;
    while (q < pixels && kind(q) === k) q++;
    if (k) pen.rect(x.low + p * width, y, (q - p) * width, high, k === 2 ? colors.exposed : colors.overlapped);
    p = q;
  }
}

/** A set where it covers half of a half pixel or more, for the same reason. */
function drawMostly(pen: Pen, set: Intervals, x: Linear, y: number, high: number, fill: string, s: TimelineState): void {
  const pixels = Math.min(commShares.length, Math.floor(x.high - x.low) * 2);
  const busy = filled(set, x, commShares.subarray(0, pixels), s);
  const width = (x.high - x.low) / pixels;
  for (let p = 0; p < pixels; ) {
    const on = busy[p] >= 0.5;
    let q = p + 1;
    while (q < pixels && busy[q] >= 0.5 === on) q++;
    if (on) pen.rect(x.low + p * width, y, (q - p) * width, high, fill);
    p = q;
  }
}

/** Share of each pixel that the set covers. */
function filled(set: Intervals, x: Linear, out: Float32Array, s: TimelineState): Float32Array {
  const coarse = occupancy(set, s).shares(x.from, x.to, out);
  if (coarse) return coarse;
  out.fill(0);
  const pixel = (x.to - x.from) / out.length;
  for (let i = firstAfter(set, x.from); i < set.length && set[i] < x.to; i += 2) {
    const first = Math.max(0, Math.floor((set[i] - x.from) / pixel));
    const last = Math.min(out.length - 1, Math.floor((set[i + 1] - x.from) / pixel));
    for (let p = first; p <= last; p++) {
      const start = x.from + p * pixel;
      out[p] += Math.max(0, Math.min(set[i + 1], start + pixel) - Math.max(set[i], start)) / pixel;
    }
  }
  return out;
}

function occupancy(set: Intervals, s: TimelineState): Occupancy {
  let level = occupancies.get(set);
  if (!level) {
    level = new Occupancy(set, s.view.start, s.view.end);
    occupancies.set(set, level);
  }
  return level;
}

function drawSet(pen: Pen, set: Intervals, x: Linear, y: number, high: number, fill: string, s: TimelineState, least: number): void {
  if (!set.length) return;
  const pixels = Math.min(shares.length, Math.floor(x.high - x.low));
  const busy = occupancy(set, s).shares(x.from, x.to, shares.subarray(0, pixels));
  if (busy) return drawShares(pen, busy, x, y, high, fill);
  for (let i = firstAfter(set, x.from); i < set.length && set[i] < x.to; i += 2) {
    const left = Math.max(x.at(set[i]), x.low);
    pen.rect(left, y, Math.max(least, Math.min(x.at(set[i + 1]), x.high) - left), high, fill);
  }
}

/** Runs of equally busy pixels: full ones in full height, partly busy ones in part, so that thin work stays honest. */
function drawShares(pen: Pen, busy: Float32Array, x: Linear, y: number, high: number, fill: string): void {
  const width = (x.high - x.low) / busy.length;
  for (let p = 0; p < busy.length; ) {
    const tall = Math.round(busy[p] * high);
    let q = p + 1;
    while (q < busy.length && Math.round(busy[q] * high) === tall) q++;
    if (tall > 0) pen.rect(x.low + p * width, y + high - tall, (q - p) * width, tall, fill);
    p = q;
  }
}

function drawSpans(pen: Pen, row: SpanRow, x: Linear, y: number, s: TimelineState, colors: Colors): void {
  const high = ROW - 3;
  const first = firstVisible(row.spans, x.from);
  const sought = s.search.toLowerCase();
  let drawn = 0;
  for (let i = first; i < row.spans.length && row.spans[i].start < x.to; i++) if (++drawn > 4000) break;
  if (drawn > 4000) return drawSet(pen, row.set, x, y, high, rowColor(row.spans[0], colors), s, 0);
  for (let i = first; i < row.spans.length && row.spans[i].start < x.to; i++) {
    const span = row.spans[i];
    const left = Math.max(x.at(span.start), x.low);
    const wide = Math.max(0.6, Math.min(x.at(span.end), x.high) - left);
    pen.rect(left, y, wide > 3 ? wide - 0.5 : wide, high, rowColor(span, colors));
    if (sought && span.name.toLowerCase().includes(sought)) pen.frame(left, y, Math.max(2, wide), high, colors.exposed, 1.5);
    if (wide > 44)
      pen.within(left, y, wide - 3, high, () => pen.text(span.name, left + 3, y + high / 2, { fill: inkFor(span, colors), size: 10 }));
  }
}

function rowColor(span: Span, colors: Colors): string {
  if (span.kind === "comm") return colors.overlapped;
  return span.kind === "compute" ? colors.compute : span.kind === "collective_wait" ? colors.exposed : colors.rule;
}

function inkFor(span: Span, colors: Colors): string {
  return span.kind === "comm" || span.kind === "collective_wait" ? colors.paper : colors.ink;
}

function drawLabel(pen: Pen, box: LaneBox, l: Layout, s: TimelineState, colors: Colors): void {
  const chosen = box.lane.rank === s.rank;
  const late = box.lane.rank === s.chosen?.last;
  const y = box.y + (box.thick + box.thin) / 2;
  const fill = chosen || late ? colors.ink : colors.quiet;
  pen.text(`rank ${box.lane.rank}`, LEFT - 10, y, { fill, align: "right", weight: chosen || late ? 700 : 400 });
  pen.text(box.rows.length ? "▾" : "▸", 8, y, { fill: colors.quiet, size: 11 });
  pen.text(fixed(exposedMs(box.lane), 1), LEFT + l.plot + RIGHT - 4, y, { fill, align: "right" });
  box.rows.forEach((row, i) => {
    const at = box.y + box.thick + 1 + box.thin + 4 + i * ROW + (ROW - 3) / 2;
    pen.text(fitted(pen, row.name, LEFT - 14, { size: 10 }), LEFT - 10, at, { fill: colors.quiet, align: "right", size: 10 });
  });
}

/** As seen here, or as the rank itself says where the collectives of the step were not recorded. */
function exposedMs(lane: Lane): number {
  return lane.comm.length || Number.isNaN(lane.exposedMs) ? total(lane.exposed) : lane.exposedMs;
}

function drawAxis(pen: Pen, l: Layout, x: Linear, s: TimelineState, colors: Colors): void {
  const y = l.axis + 10;
  const [from, to] = [s.from - s.view.start, s.to - s.view.start];
  const small = to - from < 0.5;
  const scale = small ? 1000 : 1;
  const unit = small ? "µs" : "ms";
  const right = LEFT + l.plot - pen.measure(unit) - 8;
  for (const t of ticks(from * scale, to * scale, Math.max(2, l.plot / 95))) {
    const at = x.at(t / scale + s.view.start);
    const text = round(t);
    pen.rect(at - 0.5, l.axis - 1, 1, 4, colors.rule);
    if (at + pen.measure(text) / 2 < right) pen.text(text, at, y, { fill: colors.quiet, align: "center" });
  }
  pen.text(unit, LEFT + l.plot, y, { fill: colors.quiet, align: "right" });
  pen.text("exposed", LEFT + l.plot + RIGHT - 4, y, { fill: colors.quiet, align: "right", size: 11 });
}

function drawMinimap(pen: Pen, l: Layout, s: TimelineState, colors: Colors): void {
  const y = l.axis + AXIS;
  const x = new Linear(s.view.start, s.view.end, LEFT, LEFT + l.plot);
  pen.rect(LEFT, y, l.plot, MINIMAP - 6, colors.idle);
  for (const box of l.boxes) drawSet(pen, box.lane.exposed, x, y + 2, MINIMAP - 10, colors.exposed, s, 0.5);
  if (s.from <= s.view.start && s.to >= s.view.end) return;
  pen.frame(x.at(s.from), y + 0.5, Math.max(3, x.at(s.to) - x.at(s.from)), MINIMAP - 7, colors.select, 1.5);
}

/** The time under a point of the minimap; null outside of it. */
export function minimapTime(l: Layout, view: StepView, x: number, y: number): number | null {
  if (y < l.axis + AXIS - 3 || x < LEFT || x > LEFT + l.plot) return null;
  return new Linear(view.start, view.end, LEFT, LEFT + l.plot).back(x);
}

function drawThread(pen: Pen, l: Layout, x: Linear, c: Collective, s: TimelineState, colors: Colors): void {
  const points: number[] = [];
  for (const box of l.boxes) {
    const member = c.members.find((m) => m.rank === box.lane.rank);
    if (member && Number.isFinite(member.start)) points.push(x.at(member.start), box.y + box.thick + 1 + box.thin / 2);
  }
  pen.within(LEFT - 4, 0, l.plot + 8, l.axis, () => {
    pen.line(points, colors.ink, 1.5);
    const unsure = (s.uncertainty / (s.to - s.from)) * l.plot;
    if (unsure > 1) for (let i = 0; i < points.length; i += 2) drawUnsure(pen, points[i], points[i + 1], unsure, colors);
    for (let i = 0; i < points.length; i += 2) pen.circle(points[i], points[i + 1], 4, colors.paper, colors.ink);
  });
  const box = l.boxes.find((b) => b.lane.rank === c.last);
  const member = c.members.find((m) => m.rank === c.last);
  if (!box || !member || !(c.lateBy > 0)) return;
  const text = `last by ${duration(c.lateBy)}${s.uncertainty > 0 ? ` ± ${duration(s.uncertainty)}` : ""}`;
  const wide = pen.measure(text, { weight: 700 });
  const at = x.at(member.start);
  if (at < LEFT || at > LEFT + l.plot) return;
  const left = at + 12 + wide > LEFT + l.plot ? at - 12 - wide : at + 12;
  const y = box.y + box.thick / 2;
  pen.rect(left - 3, y - 8, wide + 6, 16, colors.paper);
  pen.text(text, left, y, { fill: colors.warning, weight: 700 });
}

/** How far the start may be from where it is drawn, by what is known of the clocks. */
function drawUnsure(pen: Pen, x: number, y: number, wide: number, colors: Colors): void {
  pen.line([x - wide, y, x + wide, y], colors.ink, 1);
  for (const end of [x - wide, x + wide]) pen.line([end, y - 4, end, y + 4], colors.ink, 1);
}

function drawMeasure(pen: Pen, l: Layout, x: Linear, range: readonly [number, number], colors: Colors): void {
  const [a, b] = [x.at(Math.min(...range)), x.at(Math.max(...range))];
  pen.line([a, 0, a, l.axis], colors.accent, 1);
  pen.line([b, 0, b, l.axis], colors.accent, 1);
  const text = duration(Math.abs(range[1] - range[0]));
  const wide = pen.measure(text, { weight: 700 }) + 8;
  pen.rect((a + b - wide) / 2, l.axis - 18, wide, 16, colors.paper);
  pen.text(text, (a + b) / 2, l.axis - 10, { fill: colors.accent, align: "center", weight: 700 });
}

/** The collective whose bar on a lane is nearest to a time, within `slack` ms. */
export function nearest(view: StepView, rank: number, at: number, slack: number): Collective | null {
  let best: Collective | null = null;
  let least = slack;
  for (const c of view.collectives) {
    const m = c.members.find((member) => member.rank === rank);
    if (!m) continue;
    const away = at < m.start ? m.start - at : at > m.end ? at - m.end : 0;
    if (away < least) {
      least = away;
      best = c;
    }
    if (away === 0) return c;
  }
  return best;
}

/** The collective that made the others wait most, if that is worth a mark: above 0.5 % of the step. */
export function costliest(view: StepView): Collective | null {
  let best: Collective | null = null;
  for (const c of view.collectives) if (c.lateBy > (best?.lateBy ?? 0)) best = c;
  return best && best.lateBy > 0.005 * (view.end - view.start) ? best : null;
}
