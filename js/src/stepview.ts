// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What each rank did in one step, as sets of intervals on the common clock.
import type { Collective } from "./collectives";
import { clip, difference, type Intervals, intersection, NONE, union } from "./intervals";

export interface Span {
  readonly kind: string;
  readonly name: string;
  readonly start: number;
  readonly end: number;
  /** Stream, host thread or process group that its row in the unfolded lane is named after. */
  readonly row: string;
  readonly line: string | null;
  readonly bytes: number;
}

/** Input: the recorded facts of one rank in one step. */
export interface RankFacts {
  readonly rank: number;
  readonly start: number;
  readonly end: number;
  /** CPU time of the training thread in ms, NaN where unknown. */
  readonly cpu: number;
  /** Exposed time that the rank itself measured, in ms; NaN where unknown. */
  readonly exposedMs: number;
  /** A profiler window or another probe of ours slowed it. */
  readonly slowed: boolean;
  /** It trains on a GPU: this runs after its host, and a call that blocks another of its streams stops no computation. */
  readonly onDevice: boolean;
  /** What a profiler saw on the device, by kind: starts and ends. */
  readonly device: ReadonlyMap<string, Times>;
  /** The same with names, made when first asked for: there may be a million. */
  readonly spans: () => readonly Span[];
  readonly host: Span[];
}

export interface Times {
  readonly starts: number[];
  readonly ends: number[];
}

export interface Lane extends RankFacts {
  readonly compute: Intervals;
  readonly comm: Intervals;
  readonly overlapped: Intervals;
  readonly exposed: Intervals;
  /** Copies, and what kept the host from launching work; a wait for the device is not among it, as work goes on under it. */
  readonly other: Intervals;
  /** compute comes from kernels that a profiler saw, not from what blocked the training thread. */
  readonly exact: boolean;
}

export interface StepView {
  readonly step: number;
  readonly start: number;
  readonly end: number;
  readonly lanes: Lane[];
  readonly collectives: Collective[];
}

const HOST_SHOWN = new Set(["input", "gc", "copy", "checkpoint"]);

/**
 * Builds the view; without a profiler compute is the step less the time blocked in collectives and their waits, on a device up to
 * the last of these.
 */
export function stepView(step: number, facts: RankFacts[], collectives: Collective[]): StepView {
  const lanes = facts.map((f) => lane(f, collectives)).sort((a, b) => a.rank - b.rank);
  const starts = lanes.map((l) => l.start).filter(Number.isFinite);
  const ends = lanes.flatMap((l) => [l.end, l.comm.at(-1) ?? l.end]).filter(Number.isFinite);
  return { step, start: Math.min(...starts), end: Math.max(...ends), lanes, collectives };
}

function lane(facts: RankFacts, collectives: Collective[]): Lane {
  const own = collectives.flatMap((c) => c.members.filter((m) => m.rank === facts.rank));
  const times = (kind: string) => facts.device.get(kind) ?? { starts: [], ends: [] };
  const comm = times("comm").starts.length ? union(times("comm").starts, times("comm").ends) : cover(own);
  const exact = times("compute").starts.length > 0;
  const waits = facts.host.filter((h) => h.kind === "collective_wait");
  const blocked = () => cover(facts.onDevice ? waits : [...waits, ...own.filter((m) => m.synchronous)]);
  const last = facts.onDevice ? Math.max(facts.end, ...waits.map((w) => w.end)) : facts.end;
  const compute = exact
    ? union(times("compute").starts, times("compute").ends)
    : told(facts, own.length)
      ? difference(Float64Array.of(facts.start, last), blocked())
      : NONE;
  const kept = facts.host.filter((h) => HOST_SHOWN.has(h.kind));
  const other = union([...times("memcpy").starts, ...kept.map((h) => h.start)], [...times("memcpy").ends, ...kept.map((h) => h.end)]);
  return {
    ...facts,
    compute,
    comm,
    exact,
    other,
    overlapped: intersection(comm, compute),
    exposed: difference(comm, compute),
  };
}

/** Whether what blocked the rank is known: not where it only says how long it waited in all. */
function told(facts: RankFacts, collectives: number): boolean {
  return collectives > 0 || !(facts.exposedMs > 0) || facts.host.some((h) => h.kind === "collective_wait");
}

/** Ranks of which any collective of the step is known. */
export function recorders(view: StepView): Set<number> {
  return new Set(view.collectives.flatMap((c) => c.members.map((m) => m.rank)));
}

export function cover(list: readonly { start: number; end: number }[]): Intervals {
  return union(
    list.map((s) => s.start),
    list.map((s) => s.end),
  );
}

/** Exposed time of one collective on one rank, in ms: its own time without compute. */
export function exposedOf(l: Lane, start: number, end: number): number {
  const own = clip(l.exposed, start, end);
  let sum = 0;
  for (let i = 0; i < own.length; i += 2) sum += own[i + 1] - own[i];
  return sum;
}
