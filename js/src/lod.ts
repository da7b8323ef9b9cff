// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Levels of detail, computed once: of a rank x step map the worst of 2, 4, 8, ... steps; of a lane the busy share of bins.
import type { Intervals } from "./intervals";

export type Worse = "high" | "low";

/** A growing rank x column matrix, one row a rank; NaN where nothing is known. */
export class Grid {
  data: Float32Array = new Float32Array(0);
  rows = 0;
  columns = 0;
  capacity = 0;

  /** Makes room and returns whether the layout changed. */
  reserve(rows: number, columns: number): void {
    if (rows > this.rows || columns > this.capacity) {
      const capacity = Math.max(this.capacity, columns > this.capacity ? Math.max(64, Math.ceil(columns * 1.5)) : 0);
      const most = Math.max(rows, this.rows);
      const data = new Float32Array(most * capacity).fill(Number.NaN);
      for (let r = 0; r < this.rows; r++) {
        data.set(this.data.subarray(r * this.capacity, r * this.capacity + this.columns), r * capacity);
      }
      this.data = data;
      this.capacity = capacity;
      this.rows = most;
    }
    this.columns = Math.max(this.columns, columns);
  }

  get(row: number, column: number): number {
    return row < this.rows && column < this.columns ? this.data[row * this.capacity + column] : Number.NaN;
  }
}

/** A matrix with its levels: level k holds the worst of each 2**k columns. */
export class Pyramid {
  readonly levels: Grid[] = [new Grid()];

  constructor(readonly worse: Worse) {}

  set(row: number, column: number, value: number): void {
    const base = this.levels[0];
    base.reserve(row + 1, column + 1);
    base.data[row * base.capacity + column] = value;
    let c = column;
    for (let k = 1; base.columns >> k > 0 || k < this.levels.length; k++) {
      this.levels[k] ??= this.build(k);
      c >>= 1;
      const [below, grid] = [this.levels[k - 1], this.levels[k]];
      grid.reserve(base.rows, (below.columns + 1) >> 1);
      grid.data[row * grid.capacity + c] = this.worst(below.get(row, 2 * c), below.get(row, 2 * c + 1));
    }
  }

  /** Fills the base from row-major values at once. */
  fill(rows: number, columns: number, values: Float32Array): void {
    const base = new Grid();
    base.data = values;
    base.rows = rows;
    base.columns = base.capacity = columns;
    this.levels.length = 1;
    this.levels[0] = base;
    for (let k = 1; columns >> k > 0; k++) this.levels[k] = this.build(k);
  }

  /** The worst in columns [from, to) of a row, NaN where nothing is known. Reads at most about 4 values. */
  range(row: number, from: number, to: number): number {
    const level = Math.max(0, Math.min(Math.floor(Math.log2(Math.max(1, to - from))), this.levels.length - 1));
    const grid = this.levels[level];
    if (row >= grid.rows) return Number.NaN;
    const last = Math.min((Math.max(from, to - 1) >> level) + 1, grid.columns);
    let worst = Number.NaN;
    for (let c = from >> level; c < last; c++) worst = this.worst(worst, grid.data[row * grid.capacity + c]);
    return worst;
  }

  worst(a: number, b: number): number {
    if (Number.isNaN(a)) return b;
    if (Number.isNaN(b)) return a;
    return this.worse === "high" ? Math.max(a, b) : Math.min(a, b);
  }

  private build(k: number): Grid {
    const below = this.levels[k - 1];
    const grid = new Grid();
    grid.rows = below.rows;
    grid.columns = grid.capacity = (below.columns + 1) >> 1;
    // Every place is filled below.
    grid.data = new Float32Array(grid.rows * grid.capacity);
    const sign = this.worse === "high" ? 1 : -1;
    for (let r = 0; r < below.rows; r++) {
      const [from, to] = [r * below.capacity, r * grid.capacity];
      const pairs = below.columns >> 1;
      for (let c = 0; c < pairs; c++) {
        const [a, b] = [below.data[from + 2 * c], below.data[from + 2 * c + 1]];
        // Not worse, or unknown: then the other, whether known or not.
        grid.data[to + c] = sign * a > sign * b || Number.isNaN(b) ? a : b;
      }
      if (below.columns & 1) grid.data[to + pairs] = below.data[from + below.columns - 1];
    }
    return grid;
  }
}

/** Busy time of a lane in bins that halve in number from level to level. */
export class Occupancy {
  private readonly levels: Float32Array[] = [];

  constructor(
    readonly set: Intervals,
    readonly from: number,
    readonly to: number,
  ) {
    const count = set.length / 2;
    if (count < 4096) return;
    const bins = Math.min(1 << 17, 2 ** Math.ceil(Math.log2(count)));
    this.levels.push(binned(set, from, to, bins));
    for (let k = 0; this.levels[k].length > 256; k++) this.levels.push(halved(this.levels[k]));
  }

  /** Busy share of each of `out.length` pixels of [start, end], or null where drawing the intervals themselves is cheaper. */
  shares(start: number, end: number, out: Float32Array): Float32Array | null {
    if (!this.levels.length) return null;
    const pixel = (end - start) / out.length;
    const finest = (this.to - this.from) / this.levels[0].length;
    if (pixel < finest) return null;
    const k = Math.min(Math.floor(Math.log2(pixel / finest)), this.levels.length - 1);
    const bins = this.levels[k];
    const width = (this.to - this.from) / bins.length;
    for (let p = 0; p < out.length; p++) {
      const first = Math.max(0, Math.floor((start + p * pixel - this.from) / width));
      const last = Math.min(bins.length, Math.max(first + 1, Math.ceil((start + (p + 1) * pixel - this.from) / width)));
      let busy = 0;
      for (let b = first; b < last; b++) busy += bins[b];
      out[p] = last > first ? Math.min(1, busy / ((last - first) * width)) : 0;
    }
    return out;
  }
}

function binned(set: Intervals, from: number, to: number, bins: number): Float32Array {
  const out = new Float32Array(bins);
  const width = (to - from) / bins;
  for (let i = 0; i < set.length; i += 2) {
    const first = Math.max(0, Math.floor((set[i] - from) / width));
    const last = Math.min(bins - 1, Math.floor((set[i + 1] - from) / width));
    for (let b = first; b <= last; b++) {
      const start = from + b * width;
      out[b] += Math.max(0, Math.min(set[i + 1], start + width) - Math.max(set[i], start));
    }
  }
  return out;
}

function halved(bins: Float32Array): Float32Array {
  const out = new Float32Array(Math.ceil(bins.length / 2));
  for (let i = 0; i < bins.length; i++) out[i >> 1] += bins[i];
  return out;
}
