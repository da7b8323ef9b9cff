// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Everything a page knows of a run, and how a message of the pump changes it.
import { busBandwidth, type Collective, match, readRow, waits } from "./collectives";
import type { Message } from "./container";
import { crc32 } from "./crc";
import { aligned, decode, Epoch, Pool } from "./decode";
import { type Finding, readFindings } from "./finding";
import type { GradientRow, Parameter } from "./gradients";
import { median } from "./instead";
import { LogStore } from "./logs";
import { LIVE_CELLS, StepMatrix } from "./matrix";
import { METRICS, type MetricName } from "./metrics";
import { type RankFacts, type Span, type StepView, stepView, type Times } from "./stepview";
import { TableStore } from "./store";
import { LIMITS, TABLE_NAMES, TABLES, type TableName } from "./tables";

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

/** How far back to look for a step that all ranks have sampled. */
const MANY_STEPS = 200;

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

export interface Tile {
  readonly rank: number;
  readonly step: number;
  readonly height: number;
  readonly width: number;
  readonly values: number[];
  readonly histogram: number[];
}

/** A metric of every rank and step at once, where the rows themselves would be too many. */
interface Matrix {
  metric: MetricName;
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
  private readonly lastOf = new Map<number, { step: number; end: number }>();
  private readonly pace: { step: number; end: number }[] = [];
  private offsets = new Map<number, number>();
  private cached: { key: string; view: StepView } | null = null;

  constructor(private readonly cells = LIVE_CELLS) {
    this.matrix = new StepMatrix(cells);
  }

  /** Takes a message in; one that can't be decoded is counted and changes nothing but that count. */
  ingest({ header, buffers }: Message): void {
    if (header.reset) this.clear();
    if (typeof header.frame === "number") this.frame = header.frame;
    const whole = this.checked(header.crcs, buffers);
    for (const { id, buffer } of (header.schemas ?? []) as { id: number; buffer: number }[]) {
      if (whole[buffer]) this.schemas.set(id, whole[buffer]);
    }
    if (header.status) this.status = { ...this.status, ...(header.status as Partial<Status>) };
    this.grows ||= this.status.live;
    for (const m of (header.matrices ?? []) as Matrix[]) {
      const values = whole[m.buffer];
      if (values && m.metric in METRICS && values.byteLength === 4 * m.ranks.length * m.columns) {
        this.matrix.load(
          m.metric,
          m.ranks,
          m.first,
          m.columns,
          new Float32Array(values.buffer, values.byteOffset, m.ranks.length * m.columns),
        );
      } else this.damaged++;
    }
    for (const part of (header.parts ?? []) as Part[]) this.part(part, whole);
    if (header.findings) this.findings = readFindings(header.findings);
    for (const { rank, text } of (header.log ?? []) as { rank: number; text: string }[]) this.logs.append(rank, text);
    this.heard = typeof performance === "undefined" ? 0 : performance.now();
    this.version++;
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
    let step: number | null = null;
    for (const { step: s } of this.lastOf.values()) step = step === null ? s : Math.min(step, s);
    return step;
  }

  lastStep(rank: number): number | null {
    return this.lastOf.get(rank)?.step ?? null;
  }

  /** Rows that the agents left out, of any table; what only the page was not sent is `status.skipped`. */
  get dropped(): number {
    let sum = 0;
    const pool = this.pool;
    this.tables.notes.each(null, (c, i) => {
      const kind = pool.text(c.kind[i]);
      if ((kind === "dropped" || kind === "thinned") && c.value[i] > 0) sum += c.value[i];
    });
    return sum;
  }

  /** Median cost of the observer as measured by the ranks, a share of the step; NaN where not measured. */
  get observerCost(): number {
    const shares: number[] = [];
    this.tables.notes.each(null, (c, i) => {
      const measured = this.pool.text(c.kind[i]) === "observer" && this.pool.text(c.name[i]) === "cost_ratio";
      if (measured && !Number.isNaN(c.value[i])) shares.push(c.value[i]);
    });
    return shares.length ? median(shares) : Number.NaN;
  }

  /** Steps per second of the leading rank over its last 5 s of training. */
  get stepsPerSecond(): number {
    const from = this.pace[0];
    const to = this.pace.at(-1);
    return from && to && to.end > from.end ? ((to.step - from.step) / (to.end - from.end)) * 1000 : Number.NaN;
  }

  /** The devices in few words, e.g. 4 × NVIDIA H200. */
  get device(): string {
    const names = new Map<string, Set<string>>();
    this.tables.devices.each(null, (c, i) => {
      const name = this.pool.text(c.name[i]);
      const key = `${c.rank[i]}/${this.pool.text(c.device[i])}`;
      if (name) names.set(name, (names.get(name) ?? new Set()).add(key));
    });
    return [...names].map(([name, keys]) => (keys.size > 1 ? `${keys.size} × ${name}` : name)).join(", ");
  }

  /** Parameters by id, as the lowest rank names them. */
  parameters(): Parameter[] {
    const found = new Map<number, Parameter>();
    const text = (code: number) => this.pool.text(code) ?? "";
    this.tables.parameters.each(null, (c, i) => {
      const id = c.parameter_id[i];
      if (!found.has(id) || c.bucket[i] >= 0)
        found.set(id, { id, name: text(c.parameter[i]), shape: text(c.shape[i]), bucket: c.bucket[i] });
    });
    return [...found.values()].sort((a, b) => a.id - b.id);
  }

  /** Newest step up to `step` of whose gradients that column is known; null where none is here. */
  stepWith(step: number, column: string): number | null {
    let best = -1;
    for (const s of this.tables.gradients.segments) {
      if (s.minStep > step || s.maxStep <= best) continue;
      const [steps, values] = [s.columns.step, s.columns[column]];
      for (let i = 0; i < s.length; i++) if (steps[i] <= step && steps[i] > best && !Number.isNaN(values[i])) best = steps[i];
    }
    return best < 0 ? null : best;
  }

  /**
   * Gradients up to a step of which `column` is known: of the newest step that most ranks have where ranks are to be compared,
   * else each rank's own newest, as ranks sample at different steps.
   */
  gradients(step: number, column: string, together: boolean): { rows: GradientRow[]; from: number; to: number } | null {
    const newest = new Map<number, number>();
    const ranksAt = new Map<number, Set<number>>();
    for (const { columns: c, length, minStep } of this.tables.gradients.segments) {
      if (minStep > step) continue;
      for (let i = 0; i < length; i++) {
        const [at, rank] = [c.step[i], c.rank[i]];
        if (at > step || Number.isNaN(c[column][i])) continue;
        if (at > (newest.get(rank) ?? -1)) newest.set(rank, at);
        if (together && at > step - MANY_STEPS) ranksAt.set(at, (ranksAt.get(at) ?? new Set()).add(rank));
      }
    }
    if (!newest.size) return null;
    if (together) {
      const [best] = [...ranksAt].sort((a, b) => b[1].size - a[1].size || b[0] - a[0]);
      if (best) for (const rank of newest.keys()) newest.set(rank, best[1].has(rank) ? best[0] : -1);
    }
    const steps = [...newest.values()].filter((s) => s >= 0);
    const rows: GradientRow[] = [];
    this.tables.gradients.eachOf(new Set(steps), (c, i) => {
      if (newest.get(c.rank[i]) !== c.step[i]) return;
      rows.push({
        id: c.parameter_id[i],
        rank: c.rank[i],
        ready: c.ready_ns[i],
        local: c.local_norm[i],
        synced: c.synced_norm[i],
        nonfinite: c.nonfinite[i],
      });
    });
    return { rows, from: Math.min(...steps), to: Math.max(...steps) };
  }

  /** The flat norm of synchronised gradients by rank, at the newest step up to `step` that every known rank has; null without. */
  syncedNorms(step: number): { step: number; norms: Map<number, number> } | null {
    const found = new Map<number, Map<number, number>>();
    for (const { columns: c, length, minStep, maxStep } of this.tables.steps.segments) {
      if (minStep > step || maxStep < step - MANY_STEPS) continue;
      for (let i = 0; i < length; i++) {
        const at = c.step[i];
        if (at > step || at < step - MANY_STEPS || Number.isNaN(c.synced_norm[i])) continue;
        found.set(at, (found.get(at) ?? new Map()).set(c.rank[i], c.synced_norm[i]));
      }
    }
    const [best] = [...found].sort((a, b) => b[1].size - a[1].size || b[0] - a[0]);
    return best && best[1].size > 1 ? { step: best[0], norms: best[1] } : null;
  }

  /** Pictures of that parameter's gradient on the newest step, up to one, that most ranks have: they are to be compared. */
  tiles(step: number, id: number): Tile[] {
    const found = new Map<number, Tile[]>();
    this.tables.gradient_tiles.each(null, (c, i, segment) => {
      const [at, values, histogram] = [c.step[i], segment.lists.values[i], segment.lists.histogram[i]];
      if (c.parameter_id[i] !== id || at > step || !values) return;
      const tile = { rank: c.rank[i], step: at, height: c.height[i], width: c.width[i], values, histogram: histogram ?? [] };
      found.set(at, [...(found.get(at) ?? []), tile]);
    });
    const [best] = [...found].sort((a, b) => b[1].length - a[1].length || b[0] - a[0]);
    return best ? best[1].sort((a, b) => a.rank - b.rank) : [];
  }

  /** Brings waits and bandwidth of steps with new collectives up to date. */
  settle(): void {
    if (!this.dirty.size) return;
    for (const [step, list] of this.collectivesOf(this.dirty)) {
      for (const [rank, ms] of waits(list)) this.matrix.set("wait", rank, step, ms);
      const busy = busBandwidth(list);
      for (const rank of new Set(list.flatMap((c) => c.members.map((m) => m.rank)))) this.matrix.set("bandwidth", rank, step, busy);
    }
    this.dirty.clear();
  }

  /** The step as intervals on the common clock; null where nothing of it is (still) here. */
  view(step: number): StepView | null {
    const { steps, collectives, host, spans } = this.tables;
    const key = [step, steps.version, collectives.version, host.version, spans.version].join();
    if (this.cached?.key === key) return this.cached.view;
    const facts = this.facts(step);
    if (!facts.length) return null;
    const view = stepView(step, facts, this.collectivesOf(new Set([step])).get(step) ?? []);
    this.cached = { key, view };
    return view;
  }

  /** Added to a rank's times to be on the common clock, in ms. */
  offset(rank: number): number {
    return this.offsets.get(rank) ?? 0;
  }

  /** What is known of the clocks: hosts seen, and the largest uncertainty in ms. */
  clocks(): { hosts: number; uncertaintyMs: number } {
    const hosts = new Set<number>();
    let uncertainty = 0;
    this.tables.clocks.each(null, (c, i) => {
      hosts.add(c.boot_id[i] >= 0 ? c.boot_id[i] : c.host[i]);
      if (c.uncertainty_ns[i] > 0) uncertainty = Math.max(uncertainty, c.uncertainty_ns[i] / 1e6);
    });
    return { hosts: hosts.size, uncertaintyMs: uncertainty };
  }

  hostOf(rank: number): string {
    let name: string | null = null;
    this.tables.clocks.each(null, (c, i) => {
      if (c.rank[i] === rank) name = this.pool.text(c.host[i]);
    });
    return name ?? "";
  }

  /** By rank the name of the largest process group that it shares with some but not all ranks; ranks of none are left out. */
  groupsByRank(): Map<number, string> {
    const members = new Map<string, Set<number>>();
    this.tables.groups.each(null, (c, i) => {
      const name = this.pool.text(c.process_group[i]) ?? "";
      members.set(name, (members.get(name) ?? new Set()).add(c.rank[i]));
    });
    const parts = [...members].filter(([, ranks]) => ranks.size > 1 && ranks.size < this.matrix.ranks.length);
    parts.sort((a, b) => b[1].size - a[1].size || a[0].localeCompare(b[0], "en", { numeric: true }));
    const found = new Map<number, string>();
    for (const [name, ranks] of parts) for (const rank of ranks) if (!found.has(rank)) found.set(rank, name);
    return found;
  }

  private clear(): void {
    this.tables = newTables();
    this.matrix = new StepMatrix(this.cells);
    this.logs = new LogStore();
    this.epoch = new Epoch();
    this.offsets = new Map();
    this.schemas = new Map();
    this.lastOf.clear();
    this.pace.length = 0;
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

  private part(part: Part, buffers: (Uint8Array | null)[]): void {
    const spec = TABLES[part.table];
    const schema = this.schemas.get(part.schema);
    if (!spec || !schema) return;
    try {
      const whole = part.buffers.map((b) => buffers[b]).filter((b) => b !== null);
      const rows = decode(schema, whole, spec, this.pool, this.epoch);
      this.tables[part.table].append(rows);
      if (part.table === "steps") this.steps(rows.columns, rows.length);
      if (part.table === "collectives")
        for (let i = 0; i < rows.length; i++) if (rows.columns.step[i] >= 0) this.dirty.add(rows.columns.step[i]);
      if (part.table === "clocks") this.clockRows(rows.columns, rows.length);
    } catch (error) {
      this.damaged++;
      console.warn("dtscope: a message could not be decoded:", error);
    }
  }

  private steps(c: Record<string, ArrayLike<number>>, length: number): void {
    if (this.matrix.firstStep === null && !this.grows) this.matrix.begin(least(c.step, length));
    for (let i = 0; i < length; i++) {
      const [rank, step] = [c.rank[i], c.step[i]];
      this.matrix.row(rank);
      this.matrix.set("exposed", rank, step, c.exposed_ms[i]);
      this.matrix.set("ratio", rank, step, c.comm_ms[i] > 0 ? c.overlap_ms[i] / c.comm_ms[i] : Number.NaN);
      this.matrix.set("step", rank, step, c.end_ns[i] - c.start_ns[i]);
      if (this.pool.text(c.source[i]) === "profiler") this.matrix.markExact(rank, step);
      const last = this.lastOf.get(rank);
      if (!last || step >= last.step) this.lastOf.set(rank, { step, end: c.end_ns[i] });
      if (step > (this.pace.at(-1)?.step ?? -1)) this.pace.push({ step, end: c.end_ns[i] });
    }
    const newest = this.pace.at(-1)?.end ?? 0;
    while (this.pace.length > 2 && this.pace[0].end < newest - 5000) this.pace.shift();
  }

  private clockRows(c: Record<string, ArrayLike<number>>, length: number): void {
    for (let i = 0; i < length; i++) if (!Number.isNaN(c.offset_ns[i])) this.offsets.set(c.rank[i], c.offset_ns[i] / 1e6);
    this.cached = null;
  }

  private collectivesOf(steps: Set<number>): Map<number, Collective[]> {
    const rows = new Map<number, ReturnType<typeof readRow>[]>();
    this.tables.collectives.eachOf(steps, (c, i) => {
      const list = rows.get(c.step[i]) ?? [];
      if (!list.length) rows.set(c.step[i], list);
      list.push(readRow(c, i, this.pool, this.offset(c.rank[i])));
    });
    return new Map([...rows].map(([step, list]) => [step, match(list)]));
  }

  private facts(step: number): RankFacts[] {
    const facts = new Map<number, Omit<RankFacts, "device"> & { device: Map<string, Times> }>();
    this.tables.steps.each(step, (c, i) => {
      const rank = c.rank[i];
      const shift = this.offset(rank);
      facts.set(rank, {
        rank,
        start: c.start_ns[i] + shift,
        end: c.end_ns[i] + shift,
        cpu: c.thread_cpu_ms[i],
        device: new Map(),
        spans: once(() => this.spansOf(step, rank)),
        host: [],
      });
    });
    this.tables.host.each(step, (c, i) => facts.get(c.rank[i])?.host.push(this.span(c, i, "host")));
    this.tables.spans.each(step, (c, i) => {
      const device = facts.get(c.rank[i])?.device;
      if (!device) return;
      const kind = this.pool.text(c.kind[i]) ?? "";
      const shift = this.offset(c.rank[i]);
      const times = device.get(kind) ?? { starts: [], ends: [] };
      if (!times.starts.length) device.set(kind, times);
      times.starts.push(c.start_ns[i] + shift);
      times.ends.push(c.end_ns[i] + shift);
    });
    return [...facts.values()];
  }

  private spansOf(step: number, rank: number): Span[] {
    const out: Span[] = [];
    this.tables.spans.each(step, (c, i) => {
      if (c.rank[i] === rank) out.push(this.span(c, i, "spans"));
    });
    return out;
  }

  private span(c: Record<string, ArrayLike<number>>, i: number, table: "spans" | "host"): Span {
    const text = (name: string) => this.pool.text(c[name][i]);
    const shift = this.offset(c.rank[i]);
    const kind = text("kind") ?? "";
    const [start, end] = [c.start_ns[i] + shift, c.end_ns[i] + shift];
    if (table === "host") return { kind, name: text("detail") ?? kind, start, end, row: "host", line: text("line"), bytes: c.bytes[i] };
    const row = kind === "comm" ? `comm ${text("process_group") ?? ""}` : c.stream[i] >= 0 ? `stream ${c.stream[i]}` : "host thread";
    return { kind, name: text("name") ?? kind, start, end, row, line: text("line"), bytes: c.bytes[i] };
  }
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | null = null;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

function least(values: ArrayLike<number>, length: number): number {
  let found = Number.POSITIVE_INFINITY;
  for (let i = 0; i < length; i++) if (values[i] < found) found = values[i];
  return Number.isFinite(found) ? found : 0;
}

function newTables(): Record<TableName, TableStore> {
  return Object.fromEntries(TABLE_NAMES.map((n) => [n, new TableStore(TABLES[n], LIMITS[n])])) as Record<TableName, TableStore>;
}
