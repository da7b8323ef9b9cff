// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The rank x step map in memory: one pyramid a metric. Bounded: when it would grow too large two steps share a column.
import { Pyramid } from "./lod";
import { METRIC_NAMES, METRICS, type MetricName, type Range } from "./metrics";

export const LIVE_CELLS = 512 * 1024;
/** A map is at most some 4,000 pixels wide: more columns than a few a pixel would only be held, hour after hour. */
const [MIN_COLUMNS, MOST_COLUMNS] = [4096, 16_384];
/** Steps marked as slowed by us; of more the oldest are forgotten. */
const MOST_SLOWED = 4096;
/** Sampled steps beside others that must be known before their lengths are compared, and the newest columns that are. */
const [FEW_SAMPLES, MOST_COMPARED] = [8, 4096];

/** What a cell rests on: the rank's own exposed time alone, collectives recorded in the step, or a profiler. */
export const [ESTIMATED, RECORDED, PROFILED] = [0, 1, 2];

export class StepMatrix {
  readonly ranks: number[] = [];
  /** Steps that share one column, a power of two. */
  stride = 1;
  firstStep: number | null = null;
  lastStep = -1;
  version = 0;
  pyramids: Record<MetricName, Pyramid> = fresh();
  /** ESTIMATED, RECORDED or PROFILED; of several steps in a column the best. */
  evidence = new Pyramid("high");
  /** Steps that a profiler window or another probe of ours slowed. */
  readonly slowed = new Set<number>();
  private estimates = false;
  private profiles = false;
  private recorded = false;
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

  /** Says what a cell rests on. */
  witness(rank: number, step: number, evidence: number): void {
    if (!this.admit(step)) return;
    const [row, column] = [this.row(rank), this.column(step)];
    const old = this.stride > 1 ? this.evidence.levels[0].get(row, column) : Number.NaN;
    this.evidence.set(row, column, this.evidence.worst(old, evidence));
    this.estimates ||= evidence === ESTIMATED;
    this.profiles ||= evidence === PROFILED;
    this.recorded ||= evidence === RECORDED;
  }

  /** Whether some cells are more exact than others, and by what: "" where all are alike. */
  get exactBy(): "" | "profiled" | "sampled" {
    if (this.estimates && (this.recorded || this.profiles)) return "sampled";
    return this.profiles ? "profiled" : "";
  }

  /** Whether a cell is to be marked as exact. */
  marked(row: number, column: number): boolean {
    const by = this.exactBy;
    return by !== "" && this.evidence.levels[0].get(row, column) >= (by === "profiled" ? PROFILED : RECORDED);
  }

  get(name: MetricName, rank: number, step: number): number {
    const row = this.rows.get(rank);
    return row === undefined ? Number.NaN : this.pyramids[name].levels[0].get(row, this.column(step));
  }

  /** What the cell of a rank and step rests on; NaN where it is unknown. */
  evidenceOf(rank: number, step: number): number {
    const row = this.rows.get(rank);
    return row === undefined ? Number.NaN : this.evidence.levels[0].get(row, this.column(step));
  }

  /** Says that a probe of ours slowed a step. */
  slow(step: number): void {
    this.slowed.add(step);
    if (this.slowed.size > MOST_SLOWED) this.slowed.delete(this.slowed.values().next().value!);
  }

  /**
   * How much longer steps are in which collectives are recorded than the others beside them, a share (median); NaN where too few
   * are known. Steps far apart may do other work.
   */
  get sampledLonger(): number {
    if (this.exactBy !== "sampled" || this.stride > 1) return Number.NaN;
    const shares: number[] = [];
    for (let c = Math.max(1, this.columns - MOST_COMPARED); c < this.columns - 1; c++) {
      const beside = [c - 1, c + 1].filter((other) => this.rests(other) === ESTIMATED).map((other) => this.length(other));
      const share = this.rests(c) === RECORDED ? this.length(c) / (beside.reduce((a, b) => a + b, 0) / beside.length) : Number.NaN;
      if (Number.isFinite(share)) shares.push(share);
    }
    return shares.length < FEW_SAMPLES ? Number.NaN : median(shares) - 1;
  }

  /** What a column rests on on the first rank; NaN where a probe of ours slowed the step. */
  private rests(column: number): number {
    return this.slowed.has(this.stepAt(column)) ? Number.NaN : this.evidence.levels[0].get(0, column);
  }

  private length(column: number): number {
    return this.pyramids.step.levels[0].get(0, column);
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
  load(name: MetricName | "evidence", ranks: readonly number[], first: number, columns: number, values: Float32Array): void {
    this.begin(first);
    for (const rank of ranks) this.row(rank);
    this.lastStep = Math.max(this.lastStep, first + columns - 1);
    if (name === "evidence") this.loadEvidence(ranks.length, columns, values);
    else this.pyramids[name].fill(ranks.length, columns, values);
    this.version++;
  }

  private loadEvidence(rows: number, columns: number, values: Float32Array): void {
    this.evidence.fill(rows, columns, values);
    for (const v of values) {
      this.estimates ||= v === ESTIMATED;
      this.profiles ||= v === PROFILED;
      this.recorded ||= v === RECORDED;
    }
  }

  /** Typical and extreme values, from at most about 20,000 cells evenly taken. */
  range(name: MetricName): Range {
    return { ...this.quantiles(name), stepMs: this.quantiles("step").median };
  }

  private quantiles(name: MetricName): { median: number; high: number; largest: number } {
    const grid = this.pyramids[name].levels[0];
    const seen: number[] = [];
    const jump = Math.max(1, Math.floor((grid.rows * grid.columns) / 20_000));
    const looked = Math.ceil((grid.rows * grid.columns) / jump);
    for (let k = 0; k < grid.rows * grid.columns; k += jump) {
      const v = grid.data[Math.floor(k / grid.columns) * grid.capacity + (k % grid.columns)];
      if (!Number.isNaN(v)) seen.push(v);
    }
    const sorted = Float64Array.from(seen).sort();
    const at = (q: number) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
    // A few far outliers, such as the first step, must not pale the rest; of a short run the whole first step lies beyond.
    const known = Math.round((grid.columns * seen.length) / Math.max(1, looked));
    const share = known >= 4 ? Math.min(0.97, 1 - 1 / known) : 0.97;
    const high = sorted[Math.max(0, Math.ceil(share * sorted.length - 1e-9) - 1)] ?? Number.NaN;
    return { median: at(0.5), high, largest: sorted.at(-1) ?? Number.NaN };
  }

  private admit(step: number): boolean {
    if (step < 0) return false;
    if (this.firstStep === null) this.firstStep = step < 64 ? 0 : step;
    if (step < this.firstStep) return false;
    if (step <= this.lastStep) return true;
    this.lastStep = step;
    const most = Math.min(MOST_COLUMNS, Math.max(MIN_COLUMNS, this.cells / Math.max(1, this.ranks.length)));
    while (this.columns > most) this.halve();
    return true;
  }

  private halve(): void {
    this.stride *= 2;
    for (const name of METRIC_NAMES) this.pyramids[name] = halved(this.pyramids[name]);
    this.evidence = halved(this.evidence);
    this.version++;
  }
}

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[values.length >> 1];
}

/** The same with two columns as one, the worse of them. */
function halved(old: Pyramid): Pyramid {
  const made = new Pyramid(old.worse);
  const half = old.levels[1];
  if (!half?.columns) return made;
  const values = new Float32Array(half.rows * half.columns);
  for (let r = 0; r < half.rows; r++) {
    values.set(half.data.subarray(r * half.capacity, r * half.capacity + half.columns), r * half.columns);
  }
  made.fill(half.rows, half.columns, values);
  return made;
}

function fresh(): Record<MetricName, Pyramid> {
  return Object.fromEntries(METRIC_NAMES.map((n) => [n, new Pyramid(METRICS[n].worse)])) as Record<MetricName, Pyramid>;
}
