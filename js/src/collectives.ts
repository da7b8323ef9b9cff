// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The collectives of one step, matched over ranks. wait = latest start minus a rank's own; transfer = shortest duration.
import type { Pool } from "./decode";
import type { Columns } from "./store";

/** One rank's part in a collective; times in ms on the common clock. */
export interface Member {
  readonly rank: number;
  readonly enqueue: number;
  readonly start: number;
  readonly end: number;
  readonly wait: number;
  readonly synchronous: boolean;
  readonly line: string | null;
}

export interface Collective {
  readonly key: string;
  readonly group: string;
  readonly operation: string;
  readonly bytes: number;
  readonly bucket: number;
  readonly phase: string | null;
  readonly groupSize: number;
  readonly members: Member[];
  /** Who started last, by how much before the second to last; null for sends and receives and for one member. */
  readonly last: number | null;
  readonly lateBy: number;
  readonly transfer: number;
}

interface Row {
  rank: number;
  group: string;
  operation: string;
  source: number;
  seq: number;
  order: number;
  start: number;
  end: number;
  enqueue: number;
  bytes: number;
  bucket: number;
  phase: string | null;
  groupSize: number;
  synchronous: boolean;
  line: string | null;
}

const EXACTNESS = ["host", "flight_recorder", "event", "profiler"];
const POINT_TO_POINT = /^(send|recv|isend|irecv|receive)/;

/** Reads rows of the collectives table; `offset` is added to a rank's times. */
export function readRow(c: Columns, i: number, pool: Pool, offset: number): Row {
  return {
    rank: c.rank[i],
    group: pool.text(c.process_group[i]) ?? "",
    operation: pool.text(c.operation[i]) ?? "",
    source: EXACTNESS.indexOf(pool.text(c.source[i]) ?? ""),
    seq: c.seq[i],
    order: 0,
    start: (Number.isNaN(c.start_ns[i]) ? c.enqueue_ns[i] : c.start_ns[i]) + offset,
    end: c.end_ns[i] + offset,
    enqueue: c.enqueue_ns[i] + offset,
    bytes: c.bytes[i],
    bucket: c.bucket[i],
    phase: pool.text(c.phase[i]),
    groupSize: c.group_size[i],
    synchronous: c.asynchronous[i] === 0,
    line: pool.text(c.line[i]),
  };
}

/** Matches rows of one step by process group and position; ordered by first start. */
export function match(rows: Row[]): Collective[] {
  const groups = new Map<string, Map<number, Row[]>>();
  for (const row of rows) {
    const byRank = getOr(groups, row.group, () => new Map<number, Row[]>());
    getOr(byRank, row.rank, () => []).push(row);
  }
  const out: Collective[] = [];
  for (const [group, byRank] of groups) {
    for (const [rank, list] of byRank) byRank.set(rank, numbered(exactest(latest(list))));
    const counts = new Set([...byRank.values()].map((list) => list.length));
    const matched = new Map<string, Row[]>();
    for (const list of byRank.values()) {
      for (const row of list) {
        const place = counts.size === 1 || Number.isNaN(row.seq) ? `o${row.order}` : `s${row.seq}`;
        getOr(matched, `${group}/${place}`, () => []).push(row);
      }
    }
    for (const [key, members] of matched) out.push(collective(key, members));
  }
  return out.sort((a, b) => firstStart(a) - firstStart(b));
}

export function firstStart(c: Collective): number {
  return Math.min(...c.members.map((m) => m.start).filter(Number.isFinite));
}

/** Sum of each rank's waits, in ms. */
export function waits(list: Collective[]): Map<number, number> {
  const out = new Map<number, number>();
  for (const c of list) {
    if (c.last === null) continue;
    for (const m of c.members) if (m.wait >= 0) out.set(m.rank, (out.get(m.rank) ?? 0) + m.wait);
  }
  return out;
}

/** Bytes on the wire over bytes of the message, as nccl-tests counts bus bandwidth. */
export function busFactor(operation: string, n: number): number {
  if (n < 2) return 0;
  if (operation.startsWith("all_reduce")) return (2 * (n - 1)) / n;
  return /all_gather|reduce_scatter|all_to_all/.test(operation) ? (n - 1) / n : 1;
}

/** Bus bandwidth over all collectives in GB/s: bytes on the wire over the transfer times; NaN where unknown. */
export function busBandwidth(list: Collective[]): number {
  let wire = 0;
  let ms = 0;
  for (const c of list) {
    if (c.last === null || !(c.transfer > 0) || !(c.bytes > 0)) continue;
    wire += c.bytes * busFactor(c.operation, c.groupSize > 0 ? c.groupSize : c.members.length);
    ms += c.transfer;
  }
  return ms > 0 ? wire / ms / 1e6 : Number.NaN;
}

/** Of a collective written twice, once while it was pending, the last row. */
function latest(list: Row[]): Row[] {
  const at = new Map<string, Row>();
  list.forEach((row, i) => {
    const alone = Number.isNaN(row.seq) || POINT_TO_POINT.test(row.operation);
    at.set(alone ? `#${i}` : `${row.source}/${row.seq}`, row);
  });
  return [...at.values()];
}

function exactest(list: Row[]): Row[] {
  const best = Math.max(...list.map((row) => row.source));
  return list.filter((row) => row.source === best);
}

function numbered(list: Row[]): Row[] {
  list.sort((a, b) => a.seq - b.seq || a.start - b.start || a.enqueue - b.enqueue);
  list.forEach((row, i) => {
    row.order = i;
  });
  return list;
}

function collective(key: string, rows: Row[]): Collective {
  rows.sort((a, b) => a.rank - b.rank);
  const [first] = rows;
  const starts = rows
    .map((r) => r.start)
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  const paired = rows.length > 1 && starts.length === rows.length && !POINT_TO_POINT.test(first.operation);
  const latest = starts.at(-1) ?? Number.NaN;
  const durations = rows.map((r) => r.end - r.start).filter((d) => d >= 0);
  return {
    key,
    group: first.group,
    operation: first.operation,
    bytes: first.bytes,
    bucket: first.bucket,
    phase: first.phase,
    groupSize: first.groupSize,
    members: rows.map((r) => ({
      rank: r.rank,
      enqueue: r.enqueue,
      start: r.start,
      end: r.end,
      synchronous: r.synchronous,
      line: r.line,
      wait: paired ? latest - r.start : Number.NaN,
    })),
    last: paired ? rows.find((r) => r.start === latest)!.rank : null,
    lateBy: paired ? latest - starts[starts.length - 2] : Number.NaN,
    transfer: paired && durations.length ? Math.min(...durations) : Number.NaN,
  };
}

function getOr<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}
