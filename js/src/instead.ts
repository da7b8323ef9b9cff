// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What the last rank of a collective did before it, compared with the others: the difference is why it came late.
import type { Collective } from "./collectives";
import { clip, difference, type Intervals, total, union } from "./intervals";
import { cover, type Lane, type StepView } from "./stepview";

export const ACTIVITIES = ["compute", "input", "garbage collection", "host sync", "copy", "checkpoint", "nothing"] as const;
export type Activity = (typeof ACTIVITIES)[number];

/** What kept a rank from beginning the step when others did. */
export const STEP_BEFORE = "the step before";

export interface Instead {
  readonly rank: number;
  readonly lateBy: number;
  /** ms from the rank's start of the step to the collective's start: on the last rank, and the median of the others. */
  readonly rows: { activity: Activity | typeof STEP_BEFORE; own: number; others: number; more: number }[];
  /** Names that explain most of the difference, largest first. */
  readonly names: { name: string; line: string | null; row: string; count: number; more: number; only: boolean }[];
}

const KINDS: Record<string, Activity> = {
  input: "input",
  gc: "garbage collection",
  host_sync: "host sync",
  copy: "copy",
  memcpy: "copy",
  checkpoint: "checkpoint",
};

/** null for a collective without a last rank, or whose last rank has no lane. */
export function instead(view: StepView, c: Collective): Instead | null {
  const last = view.lanes.find((l) => l.rank === c.last);
  if (!last || c.last === null) return null;
  const until = new Map(c.members.map((m) => [m.rank, m.start]));
  const others = view.lanes.filter((l) => l.rank !== c.last && until.has(l.rank));
  const own = activities(last, until.get(c.last)!);
  const theirs = others.map((l) => activities(l, until.get(l.rank)!));
  const rows: Instead["rows"] = ACTIVITIES.map((activity) => {
    const typical = median(theirs.map((t) => t[activity]));
    return { activity, own: own[activity], others: typical, more: own[activity] - typical };
  });
  const before = { own: last.start - view.start, others: median(others.map((l) => l.start - view.start)) };
  const more = before.own - before.others;
  if (more > 0.05 * c.lateBy) rows.unshift({ activity: STEP_BEFORE, ...before, more });
  return { rank: c.last, lateBy: c.lateBy, rows, names: names(last, others, until) };
}

/** Time of each activity on a rank from the step's start until `until`; they are disjoint, host activities first. */
export function activities(l: Lane, until: number): Record<Activity, number> {
  const out = Object.fromEntries(ACTIVITIES.map((a) => [a, 0])) as Record<Activity, number>;
  let taken: Intervals = new Float64Array(0);
  const take = (activity: Activity, set: Intervals) => {
    const fresh = difference(clip(set, l.start, until), taken);
    out[activity] += total(fresh);
    taken = merged(taken, fresh);
  };
  if (l.exact) take("compute", l.compute);
  for (const [kind, activity] of Object.entries(KINDS)) take(activity, cover([...l.host, ...l.spans()].filter((s) => s.kind === kind)));
  if (!l.exact) take("compute", l.compute);
  out.nothing = Math.max(0, until - l.start - total(taken));
  if (!l.exact) idle(l, out);
  return out;
}

/**
 * On a CPU compute is whatever was not blocked; where the training thread used less CPU time than that it slept. When in the
 * step it did is not known: it is taken to be before the collective.
 */
function idle(l: Lane, out: Record<Activity, number>): void {
  if (Number.isNaN(l.cpu)) return;
  const slept = Math.min(out.compute, Math.max(0, total(l.compute) - l.cpu - total(l.other)));
  out.compute -= slept;
  out.nothing += slept;
}

function names(last: Lane, others: Lane[], until: Map<number, number>): Instead["names"] {
  const own = byName(last, until.get(last.rank)!);
  const theirs = others.map((l) => byName(l, until.get(l.rank)!));
  return [...own]
    .map(([name, t]) => {
      const typical = median(theirs.map((m) => m.get(name)?.ms ?? 0));
      const count = t.count - Math.round(median(theirs.map((m) => m.get(name)?.count ?? 0)));
      return { name, line: t.line, row: t.row, count: Math.max(1, count), more: t.ms - typical, only: typical === 0 };
    })
    .filter((n) => n.more > 0.05 * elapsed(last, until))
    .sort((a, b) => b.more - a.more)
    .slice(0, 3);
}

function elapsed(l: Lane, until: Map<number, number>): number {
  return until.get(l.rank)! - l.start;
}

function byName(l: Lane, until: number): Map<string, { ms: number; count: number; line: string | null; row: string }> {
  const out = new Map<string, { ms: number; count: number; line: string | null; row: string }>();
  for (const s of [...l.spans(), ...l.host]) {
    if (s.kind === "comm" || s.kind === "collective_wait" || s.start >= until || !(s.end > s.start)) continue;
    const t = out.get(s.name) ?? { ms: 0, count: 0, line: s.line, row: s.row };
    out.set(s.name, { ...t, ms: t.ms + Math.min(s.end, until) - s.start, count: t.count + 1 });
  }
  return out;
}

function merged(a: Intervals, b: Intervals): Intervals {
  const starts = [...a, ...b].filter((_, i) => i % 2 === 0);
  const ends = [...a, ...b].filter((_, i) => i % 2 === 1);
  return union(starts, ends);
}

export function median(values: number[]): number {
  if (!values.length) return 0;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
