// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What an unfolded lane shows: compute, communication by process group, copies and host, each its rows.

import type { Intervals } from "./intervals";
import { cover, type Lane, type Span, type StepView } from "./stepview";

export interface SpanRow {
  readonly name: string;
  readonly spans: readonly Span[];
  readonly set: Intervals;
}

const ORDER = ["compute", "comm", "copies", "host"];
const COPIES = new Set(["memcpy", "memset", "copy"]);
const rowsOf = new WeakMap<Lane, SpanRow[]>();

/** The rows of a lane; kept, as a lane never changes. Where no profiler was, they come from what the rank recorded. */
export function laneRows(lane: Lane, view: StepView): SpanRow[] {
  let rows = rowsOf.get(lane);
  if (!rows) {
    const seen = [...lane.spans(), ...lane.host];
    if (!lane.exact) seen.push(...unblocked(lane));
    if (!seen.some((s) => s.kind === "comm")) seen.push(...recorded(lane, view));
    rows = grouped(seen);
    rowsOf.set(lane, rows);
  }
  return rows;
}

function grouped(seen: readonly Span[]): SpanRow[] {
  const streams = new Set(seen.filter((s) => s.kind === "compute").map((s) => s.row));
  const byRow = new Map<string, Span[]>();
  for (const span of seen) {
    const name = rowName(span, streams.size > 1);
    const list = byRow.get(name);
    if (list) list.push(span);
    else byRow.set(name, [span]);
  }
  const place = (name: string) => ORDER.findIndex((kind) => name.startsWith(kind));
  return [...byRow]
    .sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b, "en", { numeric: true }))
    .map(([name, spans]) => {
      spans.sort((a, b) => a.start - b.start);
      return { name, spans, set: cover(spans) };
    });
}

function rowName(span: Span, several: boolean): string {
  if (span.kind === "compute") return several ? `compute ${span.row.replace("stream ", "s")}` : "compute";
  if (span.kind === "comm") return span.row;
  return COPIES.has(span.kind) ? "copies" : "host";
}

/** Time in which the training thread was not blocked by communication. */
function unblocked(lane: Lane): Span[] {
  const out: Span[] = [];
  const { compute } = lane;
  for (let i = 0; i < compute.length; i += 2)
    out.push({
      kind: "compute",
      name: "not blocked",
      start: compute[i],
      end: compute[i + 1],
      row: "compute",
      line: null,
      bytes: Number.NaN,
    });
  return out;
}

function recorded(lane: Lane, view: StepView): Span[] {
  return view.collectives.flatMap((c) =>
    c.members
      .filter((m) => m.rank === lane.rank && m.end > m.start)
      .map((m) => {
        const name = c.bucket >= 0 ? `${c.operation} ${c.bucket}` : c.operation;
        return { kind: "comm", name, start: m.start, end: m.end, row: `comm ${c.group}`, line: m.line, bytes: c.bytes };
      }),
  );
}

export function firstVisible(spans: readonly Span[], from: number): number {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].end > from) high = middle;
    else low = middle + 1;
  }
  return Math.max(0, low - 1);
}

/** The span of a row that holds a time, or is within `slack` ms of it. */
export function spanAt(row: SpanRow, at: number, slack: number): Span | null {
  for (let i = firstVisible(row.spans, at - slack); i < row.spans.length && row.spans[i].start <= at + slack; i++) {
    if (row.spans[i].end >= at - slack) return row.spans[i];
  }
  return null;
}
