// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The map as pixels, where cells are too small or too many to be strokes. Panning moves the picture and paints what comes in.
import type { Grid } from "./lod";
import type { MapState } from "./mapgeometry";
import { costs } from "./metrics";

/** A part of the pixel columns of the whole map, which lie on one grid however far it is panned. */
interface Strip {
  readonly first: number;
  readonly wide: number;
  readonly h: number;
}

/** Pixels over columns of the map: `w` pixels for the columns shown. */
interface Scale {
  readonly w: number;
  readonly columns: number;
}

interface Painted {
  readonly matrix: MapState["matrix"];
  readonly key: string;
  readonly order: readonly number[];
  readonly range: MapState["range"];
  readonly table: Uint32Array;
  readonly first: number;
}

const painted = new WeakMap<HTMLCanvasElement, Painted>();

/** Brings a picture of `w` x `h` pixels up to date. */
export function paintImage(image: HTMLCanvasElement, w: number, h: number, s: MapState, table: Uint32Array): void {
  const scale = { w, columns: s.to - s.from };
  const first = firstPixel(s, scale);
  const key = [s.metric, s.matrix.version, w, h, scale.columns].join();
  const now = { matrix: s.matrix, key, order: s.order, range: s.range, table, first };
  const old = painted.get(image);
  const context = image.getContext("2d")!;
  painted.set(image, now);
  const by = old && same(old, now) ? first - old.first : w;
  if (Math.abs(by) >= w) {
    image.width = w;
    image.height = h;
    return put(context, { first, wide: w, h }, 0, scale, s, table);
  }
  if (!by) return;
  // The part that has moved out leaves nothing behind.
  context.globalCompositeOperation = "copy";
  context.drawImage(image, -by, 0);
  const from = by > 0 ? w - by : 0;
  put(context, { first: first + from, wide: Math.abs(by), h }, from, scale, s, table);
}

function same(a: Painted, b: Painted): boolean {
  return a.matrix === b.matrix && a.key === b.key && a.order === b.order && a.range === b.range && a.table === b.table;
}

function put(context: CanvasRenderingContext2D, strip: Strip, x: number, scale: Scale, s: MapState, table: Uint32Array): void {
  const data = context.createImageData(strip.wide, strip.h);
  paintPixels(new Uint32Array(data.data.buffer), strip, scale, s, table);
  context.putImageData(data, x, 0);
}

/** The leftmost pixel of what is shown, on the grid of the whole map; rounded so that the newest step is never what is cut. */
export function firstPixel(s: Pick<MapState, "from">, { w, columns }: Scale): number {
  return Math.ceil((s.from * w) / columns);
}

/** One pixel for each part of the map, the worst of what falls into it. */
export function paintPixels(pixels: Uint32Array, strip: Strip, scale: Scale, s: MapState, table: Uint32Array): void {
  const worst = new Float32Array(pixels.length).fill(Number.NEGATIVE_INFINITY);
  const pyramid = s.matrix.pyramids[s.metric];
  const level = Math.max(0, Math.min(Math.floor(Math.log2(scale.columns / scale.w)) - 1, pyramid.levels.length - 1));
  const sign = pyramid.worse === "high" ? 1 : -1;
  merge(worst, strip, spans(strip, scale, level, pyramid.levels[level].columns), pyramid.levels[level], sign, s.order);
  const of = costs(s.metric, s.range);
  for (let k = 0; k < worst.length; k++) if (worst[k] > Number.NEGATIVE_INFINITY) pixels[k] = table[Math.round(of(sign * worst[k]) * 255)];
}

/** The columns of a level that fall into each pixel, at least one: where they begin and end. */
function spans({ first, wide }: Strip, { w, columns }: Scale, level: number, most: number): [Int32Array, Int32Array] {
  const begins = new Int32Array(wide);
  const ends = new Int32Array(wide);
  const edge = (x: number) => Math.floor(((first + x) * columns) / w);
  for (let x = 0; x < wide; x++) {
    begins[x] = edge(x) >> level;
    ends[x] = Math.min(most, Math.max(begins[x] + 1, ((edge(x + 1) - 1) >> level) + 1));
  }
  return [begins, ends];
}

/** Ranks that share a row of pixels are merged as well; low costs are negated, so that the worst is the largest. */
function merge(
  worst: Float32Array,
  { wide, h }: Strip,
  [begins, ends]: [Int32Array, Int32Array],
  grid: Grid,
  sign: number,
  order: readonly number[],
): void {
  const { data, capacity, rows } = grid;
  for (let i = 0; i < order.length; i++) {
    if (order[i] >= rows) continue;
    const from = order[i] * capacity;
    const to = Math.floor((i * h) / order.length) * wide;
    for (let x = 0; x < wide; x++) {
      let most = worst[to + x];
      const end = from + ends[x];
      for (let k = from + begins[x]; k < end; k++) {
        // No comparison with NaN is true, so unknown cells never win.
        const v = sign * data[k];
        if (v > most) most = v;
      }
      worst[to + x] = most;
    }
  }
}
