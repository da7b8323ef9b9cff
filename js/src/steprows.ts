// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The rows of one step as facts: of each rank its times, what a profiler saw and what the host did.
import { type Collective, match, readRow } from "./collectives";
import type { Pool } from "./decode";
import { ranksOnDevices } from "./facts";
import type { RankFacts, Span, Times } from "./stepview";
import type { Tables } from "./store";

/** Where rows lie, and what is added to a rank's times to be on the common clock, in ms. */
export interface StepSource {
  readonly tables: Tables;
  readonly pool: Pool;
  offset(rank: number): number;
}

/** Collectives of the steps, matched over ranks. */
export function collectivesOf(source: StepSource, steps: ReadonlySet<number>): Map<number, Collective[]> {
  const rows = new Map<number, ReturnType<typeof readRow>[]>();
  source.tables.collectives.eachOf(steps, (c, i) => {
    const list = rows.get(c.step[i]) ?? [];
    if (!list.length) rows.set(c.step[i], list);
    list.push(readRow(c, i, source.pool, source.offset(c.rank[i])));
  });
  return new Map([...rows].map(([step, list]) => [step, match(list)]));
}

/** The facts of every rank that has a row of the step. */
export function factsOf(source: StepSource, step: number): RankFacts[] {
  const { tables, pool } = source;
  const onDevices = ranksOnDevices(source);
  const facts = new Map<number, Omit<RankFacts, "device"> & { device: Map<string, Times> }>();
  tables.steps.each(step, (c, i) => {
    const rank = c.rank[i];
    const shift = source.offset(rank);
    facts.set(rank, {
      rank,
      start: c.start_ns[i] + shift,
      end: c.end_ns[i] + shift,
      cpu: c.thread_cpu_ms[i],
      exposedMs: c.exposed_ms[i],
      slowed: c.disturbed[i] === 1,
      onDevice: onDevices.has(rank),
      device: new Map(),
      spans: once(() => spansOf(source, step, rank)),
      host: [],
    });
  });
  tables.host.each(step, (c, i) => facts.get(c.rank[i])?.host.push(span(source, c, i, "host")));
  tables.spans.each(step, (c, i) => {
    const device = facts.get(c.rank[i])?.device;
    if (!device) return;
    const kind = pool.text(c.kind[i]) ?? "";
    const shift = source.offset(c.rank[i]);
    const times = device.get(kind) ?? { starts: [], ends: [] };
    if (!times.starts.length) device.set(kind, times);
    times.starts.push(c.start_ns[i] + shift);
    times.ends.push(c.end_ns[i] + shift);
  });
  return [...facts.values()];
}

function spansOf(source: StepSource, step: number, rank: number): Span[] {
  const out: Span[] = [];
  source.tables.spans.each(step, (c, i) => {
    if (c.rank[i] === rank) out.push(span(source, c, i, "spans"));
  });
  return out;
}

function span(source: StepSource, c: Record<string, ArrayLike<number>>, i: number, table: "spans" | "host"): Span {
  const text = (name: string) => source.pool.text(c[name][i]);
  const shift = source.offset(c.rank[i]);
  const kind = text("kind") ?? "";
  const [start, end] = [c.start_ns[i] + shift, c.end_ns[i] + shift];
  if (table === "host") return { kind, name: text("detail") ?? kind, start, end, row: "host", line: text("line"), bytes: c.bytes[i] };
  const row = kind === "comm" ? `comm ${text("process_group") ?? ""}` : c.stream[i] >= 0 ? `stream ${c.stream[i]}` : "host thread";
  return { kind, name: text("name") ?? kind, start, end, row, line: text("line"), bytes: c.bytes[i] };
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | null = null;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
