// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Rows of one table in segments of bounded size; the oldest segment makes place for new rows.
import { blank, type Cell, type Numbers, type Rows } from "./decode";
import { LIMITS, type Spec, TABLE_NAMES, TABLES, type TableName } from "./tables";

const SEGMENT = 16_384;

/** Up to SEGMENT rows, and the range of steps among them. */
export interface Segment {
  length: number;
  minStep: number;
  maxStep: number;
  readonly columns: Record<string, Numbers>;
  readonly lists: Record<string, Cell[]>;
}

export type Columns = Record<string, Numbers>;
type Visit = (columns: Columns, row: number, segment: Segment) => void;

export class TableStore {
  readonly segments: Segment[] = [];
  /** Rows that made place for newer ones. */
  evicted = 0;
  total = 0;
  /** Grows with every change. */
  version = 0;

  constructor(
    readonly spec: Spec,
    private readonly limit: number,
  ) {}

  /** Adds rows, and lets the oldest go: beyond the limit, and of steps that are more than `horizon` behind the newest. */
  append(rows: Rows, horizon = Number.POSITIVE_INFINITY): void {
    let from = 0;
    while (from < rows.length) {
      const segment = this.room(rows.length - from);
      const count = Math.min(rows.length - from, capacity(segment) - segment.length);
      copy(rows, from, count, segment);
      from += count;
    }
    this.total += rows.length;
    this.version++;
    while (this.total - this.segments[0]?.length >= this.limit) this.evict();
    const newest = this.segments.at(-1)?.maxStep ?? 0;
    while (this.segments.length > 1 && this.segments[0].maxStep < newest - horizon) this.evict();
  }

  private evict(): void {
    const gone = this.segments.shift()!;
    this.total -= gone.length;
    this.evicted += gone.length;
  }

  /** Calls back for each row, or each row of one step. */
  each(step: number | null, call: Visit): void {
    for (const segment of this.segments) {
      if (step === null) for (let i = 0; i < segment.length; i++) call(segment.columns, i, segment);
      else if (segment.minStep <= step && step <= segment.maxStep) {
        const steps = segment.columns.step;
        for (let i = 0; i < segment.length; i++) if (steps[i] === step) call(segment.columns, i, segment);
      }
    }
  }

  /** Whether there is a row of the step. */
  holds(step: number): boolean {
    return this.segments.some((s) => s.minStep <= step && step <= s.maxStep && s.columns.step.subarray(0, s.length).includes(step));
  }

  /** Calls back for each row of the steps, in one pass however many they are. */
  eachOf(wanted: ReadonlySet<number>, call: Visit): void {
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    for (const step of wanted) {
      low = Math.min(low, step);
      high = Math.max(high, step);
    }
    for (const segment of this.segments) {
      if (segment.maxStep < low || segment.minStep > high) continue;
      const steps = segment.columns.step;
      for (let i = 0; i < segment.length; i++) if (wanted.has(steps[i])) call(segment.columns, i, segment);
    }
  }

  private room(wanted: number): Segment {
    const last = this.segments.at(-1);
    if (last && last.length < capacity(last)) return last;
    // The first segments are small, so that many nearly empty tables cost little.
    const size = Math.min(SEGMENT, Math.max(256, wanted, last ? capacity(last) * 4 : 0));
    const segment = newSegment(this.spec, size);
    this.segments.push(segment);
    return segment;
  }
}

export type Tables = Record<TableName, TableStore>;

/** An empty store for every table. */
export function newTables(): Tables {
  return Object.fromEntries(TABLE_NAMES.map((n) => [n, new TableStore(TABLES[n], LIMITS[n])])) as Tables;
}

function newSegment(spec: Spec, size: number): Segment {
  const columns: Record<string, Numbers> = {};
  const lists: Record<string, Cell[]> = {};
  for (const [name, kind] of Object.entries(spec)) {
    if (kind === "list") lists[name] = [];
    else columns[name] = blank(kind, size);
  }
  return { length: 0, minStep: Number.POSITIVE_INFINITY, maxStep: Number.NEGATIVE_INFINITY, columns, lists };
}

function capacity(segment: Segment): number {
  return segment.columns.rank.length;
}

function copy(rows: Rows, from: number, count: number, segment: Segment): void {
  for (const [name, values] of Object.entries(rows.columns)) {
    segment.columns[name].set(values.subarray(from, from + count), segment.length);
  }
  for (const [name, cells] of Object.entries(rows.lists)) {
    segment.lists[name].push(...cells.slice(from, from + count));
  }
  const steps = rows.columns.step;
  for (let i = from; steps && i < from + count; i++) {
    segment.minStep = Math.min(segment.minStep, steps[i]);
    segment.maxStep = Math.max(segment.maxStep, steps[i]);
  }
  segment.length += count;
}
