// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The rank x step map in memory: one pyramid a metric. Bounded: when it would grow too large two steps share a column.
import { Grid, Pyramid } from "./lod";
import { METRIC_NAMES, METRICS, type MetricName, type Range } from "./metrics";

export const LIVE_CELLS = 512 * 1024;
const MIN_COLUMNS = 4096;

export class StepMatrix {
  readonly ranks: number[] = [];
  /** Steps that share one column, a power of two. */
  stride = 1;
  firstStep: number | null = null;
  lastStep = -1;
  version = 0;
  pyramids: Record<MetricName, Pyramid> = fresh();
  /** 1 where a profiler saw the step. */
  exact = new Grid();
  private readonly rows = new Map<number, number>();

  constructor(private readonly cells: number) {}

  /** Says with which step the map begins, before the first value. */
  begin(step: number): void {
    this.firstStep ??= Math.max(0, step);
  }

  get columns(): number {
    return this.firstStep === null ? 0 : Math.floor((this.lastStep - this.firstStep) / this.stride) + 1;
  }

  row(rank: number): number {
    let row = this.rows.get(rank);
    if (row === undefined) {
      row = this.ranks.length;
      this.ranks.push(rank);
      this.rows.set(rank, row);
    }
    return row;
  }

  has(rank: number): boolean {
    return this.rows.has(rank);
  }

  column(step: number): number {
    return Math.floor((step - (this.firstStep ?? 0)) / this.stride);
  }

  /** First step of a column. */
  stepAt(column: number): number {
    return (this.firstStep ?? 0) + column * this.stride;
  }

  set(name: MetricName, rank: number, step: number, value: number): void {
    if (Number.isNaN(value) || !this.admit(step)) return;
    const pyramid = this.pyramids[name];
    const [row, column] = [this.row(rank), this.column(step)];
    const old = this.stride > 1 ? pyramid.levels[0].get(row, column) : Number.NaN;
    pyramid.set(row, column, pyramid.worst(old, value));
    this.version++;
  }

  markExact(rank: number, step: number): void {
    if (!this.admit(step)) return;
    const [row, column] = [this.row(rank), this.column(step)];
    this.exact.reserve(row + 1, column + 1);
    this.exact.data[row * this.exact.capacity + column] = 1;
  }

  get(name: MetricName, rank: number, step: number): number {
    const row = this.rows.get(rank);
    return row === undefined ? Number.NaN : this.pyramids[name].levels[0].get(row, this.column(step));
  }

  isExact(rank: number, step: number): boolean {
    const row = this.rows.get(rank);
    return row !== undefined && this.exact.get(row, this.column(step)) === 1;
  }

  /** Means over the known cells of every column from `first` on, and of every row, in one pass. */
  means(name: MetricName, first = 0): { columns: Float32Array; rows: Float32Array } {
    const grid = this.pyramids[name].levels[0];
    const sums = new Float64Array(this.columns);
    const counts = new Uint32Array(this.columns);
    const rows = new Float32Array(this.ranks.length).fill(Number.NaN);
    for (let r = 0; r < grid.rows; r++) {
      let [sum, count] = [0, 0];
      for (let c = first, k = r * grid.capacity + first; c < grid.columns; c++, k++) {
        const v = grid.data[k];
        if (Number.isNaN(v)) continue;
        sums[c] += v;
        counts[c]++;
        sum += v;
        count++;
      }
      rows[r] = sum / count;
    }
    return { columns: Float32Array.from(sums, (sum, c) => sum / counts[c]), rows };
  }

  /** Takes in a whole metric of a finished run: rows in the order of the ranks, columns from the step `first` on. */
  load(name: MetricName, ranks: readonly number[], first: number, columns: number, values: Float32Array): void {
    this.begin(first);
    for (const rank of ranks) this.row(rank);
    this.lastStep = Math.max(this.lastStep, first + columns - 1);
    this.pyramids[name].fill(ranks.length, columns, values);
    this.version++;
  }

  /** Typical and extreme values, from at most about 20,000 cells evenly taken. */
  range(name: MetricName): Range {
    return { ...this.quantiles(name), stepMs: this.quantiles("step").median };
  }

  private quantiles(name: MetricName): { median: number; high: number; largest: number } {
    const grid = this.pyramids[name].levels[0];
    const seen: number[] = [];
    const jump = Math.max(1, Math.floor((grid.rows * grid.columns) / 20_000));
    for (let k = 0; k < grid.rows * grid.columns; k += jump) {
      const v = grid.data[Math.floor(k / grid.columns) * grid.capacity + (k % grid.columns)];
      if (!Number.isNaN(v)) seen.push(v);
    }
    const sorted = Float64Array.from(seen).sort();
    const at = (q: number) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
    // A few far outliers, such as the first step, must not pale the rest; of a short run the whole first step lies beyond.
    const share = grid.columns >= 4 ? Math.min(0.97, 1 - 1 / grid.columns) : 0.97;
    const high = sorted[Math.max(0, Math.ceil(share * sorted.length - 1e-9) - 1)] ?? Number.NaN;
    return { median: at(0.5), high, largest: sorted.at(-1) ?? Number.NaN };
  }

  private admit(step: number): boolean {
    if (step < 0) return false;
    if (this.firstStep === null) this.firstStep = step < 64 ? 0 : step;
    if (step < this.firstStep) return false;
    this.lastStep = Math.max(this.lastStep, step);
    while (this.columns > Math.max(MIN_COLUMNS, this.cells / Math.max(1, this.ranks.length))) this.halve();
    return true;
  }

  private halve(): void {
    const old = this.pyramids;
    const exact = this.exact;
    this.stride *= 2;
    this.pyramids = fresh();
    this.exact = new Grid();
    for (const name of METRIC_NAMES) {
      const half = old[name].levels[1];
      if (!half?.columns) continue;
      const values = new Float32Array(half.rows * half.columns);
      for (let r = 0; r < half.rows; r++) {
        values.set(half.data.subarray(r * half.capacity, r * half.capacity + half.columns), r * half.columns);
      }
      this.pyramids[name].fill(half.rows, half.columns, values);
    }
    this.exact.reserve(exact.rows, (exact.columns + 1) >> 1);
    for (let r = 0; r < exact.rows; r++) {
      for (let c = 0; c < exact.columns; c++) {
        if (exact.get(r, c) === 1) this.exact.data[r * this.exact.capacity + (c >> 1)] = 1;
      }
    }
    this.version++;
  }
}

function fresh(): Record<MetricName, Pyramid> {
  return Object.fromEntries(METRIC_NAMES.map((n) => [n, new Pyramid(METRICS[n].worse)])) as Record<MetricName, Pyramid>;
}
