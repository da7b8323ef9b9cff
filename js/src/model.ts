// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Everything a page knows of a run, and how a message of the pump changes it.
import { busBandwidth, type Collective, waits } from "./collectives";
import type { Message } from "./container";
import { crc32 } from "./crc";
import { aligned, decode, Epoch, Pool, type Rows } from "./decode";
import { type Finding, readFindings } from "./finding";
import { LogStore } from "./logs";
import { ESTIMATED, LIVE_CELLS, PROFILED, RECORDED, StepMatrix } from "./matrix";
import { METRICS, type MetricName } from "./metrics";
import { Pace } from "./pace";
import { collectivesOf, factsOf } from "./steprows";
import { type StepView, stepView } from "./stepview";
import { newTables, type Tables } from "./store";
import { HORIZON, OF_STEPS, TABLES, type TableName } from "./tables";

/** What the kernel says of the run besides its rows. */
export interface Status {
  title: string;
  world_size: number | null;
  backend: string | null;
  state: string;
  message: string;
  live: boolean;
  ranks: Record<string, string>;
  skipped: number;
  damaged: number;
}

const NEW_STATUS: Status = {
  title: "",
  world_size: null,
  backend: null,
  state: "waiting",
  message: "",
  live: false,
  ranks: {},
  skipped: 0,
  damaged: 0,
};

/** Ranks record the collectives of one step in so many at least. */
export const RAREST_SAMPLE = 256;
/** Steps fetched from the kernel that a page keeps; the oldest make place. */
const MOST_FETCHED = 8;

/** A metric of every rank and step at once, where the rows themselves would be too many. */
interface Matrix {
  metric: MetricName | "evidence";
  ranks: number[];
  first: number;
  columns: number;
  buffer: number;
}

interface Part {
  table: TableName;
  schema: number;
  buffers: number[];
}

export class Model {
  readonly pool = new Pool();
  epoch = new Epoch();
  tables = newTables();
  matrix: StepMatrix;
  status: Status = NEW_STATUS;
  findings: Finding[] = [];
  logs = new LogStore();
  pace = new Pace();
  /** Messages that could not be decoded. */
  damaged = 0;
  frame = -1;
  /** performance.now() of the last message. */
  heard = Number.NaN;
  version = 0;
  /** Whether the run was seen live: then its map starts at step 0 and grows. */
  grows = false;
  private schemas = new Map<number, Uint8Array>();
  private readonly dirty = new Set<number>();
  private offsets = new Map<number, number>();
  private readonly extra = new Map<number, Tables>();
  private cached: { key: string; view: StepView } | null = null;

  constructor(private readonly cells = LIVE_CELLS) {
    this.matrix = new StepMatrix(cells);
  }

  /** Takes a message in; one that can't be decoded is counted and changes nothing but that count. */
  ingest({ header, buffers }: Message): void {
    if (header.reset) this.clear();
    if (typeof header.frame === "number") this.frame = header.frame;
    const whole = this.checked(header.crcs, buffers);
    this.takeSchemas(header.schemas, whole);
    if (header.status) this.status = { ...this.status, ...(header.status as Partial<Status>) };
    this.grows ||= this.status.live;
    for (const m of (header.matrices ?? []) as Matrix[]) this.load(m, whole[m.buffer]);
    for (const part of (header.parts ?? []) as Part[]) this.part(part, whole);
    if (header.findings) this.findings = readFindings(header.findings);
    for (const { rank, text } of (header.log ?? []) as { rank: number; text: string }[]) this.logs.append(rank, text);
    this.heard = typeof performance === "undefined" ? 0 : performance.now();
    this.version++;
  }

  /** Takes in all rows of one old step, apart from the others: they must not push newer ones out. */
  ingestStep({ header, buffers }: Message): void {
    const step = header.step as number;
    const whole = this.checked(header.crcs, buffers);
    this.takeSchemas(header.schemas, whole);
    const tables = newTables();
    for (const part of (header.parts ?? []) as Part[]) {
      const rows = this.decoded(part, whole);
      if (!rows) continue;
      tables[part.table].append(rows);
      if (part.table === "steps") this.cellsOf(rows);
    }
    this.extra.delete(step);
    this.extra.set(step, tables);
    if (this.extra.size > MOST_FETCHED) this.extra.delete(this.extra.keys().next().value!);
    this.spread(step, collectivesOf(this.sourceOf(step), new Set([step])).get(step) ?? []);
    this.cached = null;
    this.version++;
  }

  /** Tables that were fetched for a step; null where there are none. */
  fetched(step: number): Tables | null {
    return this.extra.get(step) ?? null;
  }

  /** Whether rows of a finished step are not here: of some rank, or every collective of one that had some. */
  lacks(step: number): boolean {
    if (step < 0 || step > (this.newestWhole ?? this.matrix.lastStep) || this.extra.has(step)) return false;
    const ranks = new Set<number>();
    let communicated = false;
    this.tables.steps.each(step, (c, i) => {
      ranks.add(c.rank[i]);
      communicated ||= c.comm_ms[i] > 0;
    });
    return ranks.size < this.matrix.ranks.length || (communicated && !this.tables.collectives.holds(step));
  }

  /** World size as far as known: said by the kernel, or the ranks seen. */
  get worldSize(): number {
    return Math.max(this.status.world_size ?? 0, this.matrix.ranks.length ? Math.max(...this.matrix.ranks) + 1 : 0);
  }

  get ranks(): number[] {
    return [...this.matrix.ranks].sort((a, b) => a - b);
  }

  /** Newest step that every rank seen has finished; null before that. */
  get newestWhole(): number | null {
    return this.pace.whole;
  }

  /** The newest of these whose collectives every rank recorded, where that is a matter of sampling and one is not long ago. */
  get newestTold(): number | null {
    const [whole, told] = [this.newestWhole, this.pace.told];
    return whole !== null && told !== null && told <= whole && whole - told <= RAREST_SAMPLE ? told : whole;
  }

  /** Of steps in order the one in the midst that shows most: all ranks recorded its collectives, else its rows are here; null of none. */
  clearest(steps: readonly number[]): number | null {
    const middle = steps.length >> 1;
    const order = steps.map((_, i) => i).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    const here = (i: number) => this.tables.steps.holds(steps[i]);
    const told = (i: number) => this.matrix.ranks.every((rank) => this.matrix.evidenceOf(rank, steps[i]) >= RECORDED);
    const found = order.find((i) => told(i) && here(i) && this.tables.collectives.holds(steps[i])) ?? order.find(here) ?? order[0];
    return found === undefined ? null : steps[found];
  }

  /** Brings waits and bandwidth of steps with new collectives up to date. */
  settle(): void {
    if (!this.dirty.size) return;
    for (const [step, list] of collectivesOf(this, this.dirty)) this.spread(step, list);
    this.dirty.clear();
  }

  /** The step as intervals on the common clock; null where nothing of it is (still) here. */
  view(step: number): StepView | null {
    const source = this.sourceOf(step);
    const { steps, collectives, host, spans } = source.tables;
    const key = [step, steps.version, collectives.version, host.version, spans.version, this.extra.has(step)].join();
    if (this.cached?.key === key) return this.cached.view;
    const facts = factsOf(source, step);
    if (!facts.length) return null;
    const view = stepView(step, facts, collectivesOf(source, new Set([step])).get(step) ?? []);
    this.cached = { key, view };
    return view;
  }

  /** Added to a rank's times to be on the common clock, in ms. */
  offset(rank: number): number {
    return this.offsets.get(rank) ?? 0;
  }

  private sourceOf(step: number): { tables: Tables; pool: Pool; offset(rank: number): number } {
    const tables = this.extra.get(step);
    if (!tables?.steps.total) return this;
    // Which ranks train on devices is told by samples of any time.
    return { tables: { ...tables, devices: this.tables.devices }, pool: this.pool, offset: (rank) => this.offset(rank) };
  }

  private spread(step: number, list: Collective[]): void {
    for (const [rank, ms] of waits(list)) this.matrix.set("wait", rank, step, ms);
    const busy = busBandwidth(list);
    for (const rank of new Set(list.flatMap((c) => c.members.map((m) => m.rank)))) this.matrix.set("bandwidth", rank, step, busy);
  }

  private clear(): void {
    this.tables = newTables();
    this.matrix = new StepMatrix(this.cells);
    this.logs = new LogStore();
    this.pace = new Pace();
    this.epoch = new Epoch();
    this.offsets = new Map();
    this.schemas = new Map();
    this.extra.clear();
    this.dirty.clear();
    this.cached = null;
  }

  /** The buffers at places that typed arrays can use, null for those whose checksum is wrong. */
  private checked(crcs: unknown, buffers: Uint8Array[]): (Uint8Array | null)[] {
    return buffers.map((buffer, i) => {
      if (Array.isArray(crcs) && crc32(buffer) === crcs[i]) return aligned(buffer);
      this.damaged++;
      return null;
    });
  }

  private takeSchemas(listed: unknown, buffers: (Uint8Array | null)[]): void {
    for (const { id, buffer } of (listed ?? []) as { id: number; buffer: number }[]) {
      const bytes = buffers[buffer];
      if (bytes) this.schemas.set(id, bytes);
    }
  }

  private load(m: Matrix, bytes: Uint8Array | null | undefined): void {
    const count = m.ranks.length * m.columns;
    if (!bytes || !(m.metric in METRICS || m.metric === "evidence") || bytes.byteLength !== 4 * count) {
      this.damaged++;
      return;
    }
    this.matrix.load(m.metric, m.ranks, m.first, m.columns, new Float32Array(bytes.buffer, bytes.byteOffset, count));
  }

  private decoded(part: Part, buffers: (Uint8Array | null)[]): Rows | null {
    const spec = TABLES[part.table];
    const schema = this.schemas.get(part.schema);
    if (!spec || !schema) return null;
    try {
      const whole = part.buffers.map((b) => buffers[b]).filter((b) => b !== null);
      return decode(schema, whole, spec, this.pool, this.epoch);
    } catch (error) {
      this.damaged++;
      console.warn("dtscope: a message could not be decoded:", error);
      return null;
    }
  }

  private part(part: Part, buffers: (Uint8Array | null)[]): void {
    const rows = this.decoded(part, buffers);
    if (!rows) return;
    this.tables[part.table].append(rows, this.grows && OF_STEPS.has(part.table) ? HORIZON : undefined);
    const { columns: c, length } = rows;
    if (part.table === "steps") this.steps(rows);
    if (part.table === "collectives") for (let i = 0; i < length; i++) if (c.step[i] >= 0) this.dirty.add(c.step[i]);
    if (part.table === "clocks") this.clockRows(rows);
  }

  private steps(rows: Rows): void {
    const { columns: c, length } = rows;
    if (this.matrix.firstStep === null && !this.grows) this.matrix.begin(least(c.step, length));
    this.cellsOf(rows);
    for (let i = 0; i < length; i++) {
      this.pace.add(c.rank[i], c.step[i], c.end_ns[i]);
      if (!Number.isNaN(c.comm_ms[i])) this.pace.tell(c.rank[i], c.step[i]);
    }
    this.pace.trim();
  }

  private cellsOf({ columns: c, length }: Rows): void {
    for (let i = 0; i < length; i++) {
      const [rank, step] = [c.rank[i], c.step[i]];
      this.matrix.row(rank);
      this.matrix.set("exposed", rank, step, c.exposed_ms[i]);
      this.matrix.set("ratio", rank, step, c.comm_ms[i] > 0 ? c.overlap_ms[i] / c.comm_ms[i] : Number.NaN);
      this.matrix.set("step", rank, step, c.end_ns[i] - c.start_ns[i]);
      if (c.disturbed[i] === 1) this.matrix.slow(step);
      if (Number.isNaN(c.exposed_ms[i])) continue;
      const profiled = this.pool.text(c.source[i]) === "profiler";
      this.matrix.witness(rank, step, profiled ? PROFILED : Number.isNaN(c.comm_ms[i]) ? ESTIMATED : RECORDED);
    }
  }

  private clockRows({ columns: c, length }: Rows): void {
    for (let i = 0; i < length; i++) if (!Number.isNaN(c.offset_ns[i])) this.offsets.set(c.rank[i], c.offset_ns[i] / 1e6);
    this.cached = null;
  }
}

function least(values: ArrayLike<number>, length: number): number {
  let found = Number.POSITIVE_INFINITY;
  for (let i = 0; i < length; i++) if (values[i] < found) found = values[i];
  return Number.isFinite(found) ? found : 0;
}
