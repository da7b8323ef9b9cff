// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The map as pixels, where cells are too small or too many to be strokes.
import type { MapState } from "./mapgeometry";
import type { StepMatrix } from "./matrix";
import { costs, METRICS } from "./metrics";

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
