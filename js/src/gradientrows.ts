// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What the tables say of gradients: parameters, rows of a step, synchronised norms, pictures.
import type { Pool } from "./decode";
import type { GradientRow, Parameter } from "./gradients";
import type { TableStore, Tables } from "./store";

/** How far back to look for a step that all ranks have sampled. */
const MANY_STEPS = 200;

/** A run's tables, and those of steps that were fetched since, if any. */
export interface Source {
  readonly tables: Tables;
  readonly pool: Pool;
  /** Tables fetched for an old step. */
  fetched(step: number): Tables | null;
}

export interface Tile {
  readonly rank: number;
  readonly step: number;
  readonly height: number;
  readonly width: number;
  readonly values: number[];
  readonly histogram: number[];
}

/** Parameters by id, as the lowest rank names them. */
export function parametersOf({ tables, pool }: Source): Parameter[] {
  const found = new Map<number, Parameter>();
  const text = (code: number) => pool.text(code) ?? "";
  tables.parameters.each(null, (c, i) => {
    const id = c.parameter_id[i];
    if (!found.has(id) || c.bucket[i] >= 0)
      found.set(id, {
        id,
        name: text(c.parameter[i]),
        shape: text(c.shape[i]),
        bucket: c.bucket[i],
        elements: c.elements[i],
        module: text(c.module[i]),
      });
  });
  return [...found.values()].sort((a, b) => a.id - b.id);
}

/** Newest step up to `step` of whose gradients that column is known; null where none is here. */
export function stepWith(source: Source, step: number, column: string): number | null {
  let best = -1;
  for (const s of stores(source, step).flatMap((store) => store.segments)) {
    if (s.minStep > step || s.maxStep <= best) continue;
    const [steps, values] = [s.columns.step, s.columns[column]];
    const bad = s.columns.nonfinite;
    for (let i = 0; i < s.length; i++) if (steps[i] <= step && steps[i] > best && known(values[i], bad[i])) best = steps[i];
  }
  return best < 0 ? null : best;
}

/** Oldest step after `step` of whose gradients that column is known; null where none is here. */
export function stepAfter({ tables }: Source, step: number, column: string): number | null {
  let best = Number.POSITIVE_INFINITY;
  for (const s of tables.gradients.segments) {
    if (s.maxStep <= step || s.minStep >= best) continue;
    const [steps, values] = [s.columns.step, s.columns[column]];
    const bad = s.columns.nonfinite;
    for (let i = 0; i < s.length; i++) if (steps[i] > step && steps[i] < best && known(values[i], bad[i])) best = steps[i];
  }
  return Number.isFinite(best) ? best : null;
}

export interface Sampled {
  readonly rows: GradientRow[];
  readonly from: number;
  readonly to: number;
}

/**
 * Gradients up to a step of which `column` is known: of the newest step that most ranks have where ranks are to be compared,
 * else each rank's own newest, as ranks sample at different steps.
 */
export function gradientsUpTo(source: Source, step: number, column: string, together: boolean): Sampled | null {
  const newest = new Map<number, number>();
  const ranksAt = new Map<number, Set<number>>();
  const places = stores(source, step);
  for (const { columns: c, length, minStep } of places.flatMap((store) => store.segments)) {
    if (minStep > step) continue;
    for (let i = 0; i < length; i++) {
      const [at, rank] = [c.step[i], c.rank[i]];
      if (at > step || !known(c[column][i], c.nonfinite[i])) continue;
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
  return { rows: rowsAt(places, newest, new Set(steps)), from: Math.min(...steps), to: Math.max(...steps) };
}

/** Each rank's gradients at its own step; a row that is in several places counts once. */
function rowsAt(places: TableStore[], at: ReadonlyMap<number, number>, steps: ReadonlySet<number>): GradientRow[] {
  const rows = new Map<string, GradientRow>();
  for (const store of places)
    store.eachOf(steps, (c, i) => {
      if (at.get(c.rank[i]) !== c.step[i]) return;
      rows.set(`${c.rank[i]}/${c.parameter_id[i]}`, {
        id: c.parameter_id[i],
        rank: c.rank[i],
        ready: c.ready_ns[i],
        local: c.local_norm[i],
        synced: c.synced_norm[i],
        nonfinite: c.nonfinite[i],
      });
    });
  return [...rows.values()];
}

/**
 * The flat norm of synchronised gradients by rank, at the newest step up to `step` that every known rank has; null without, or where
 * nothing synchronised them.
 */
export function syncedNorms({ tables }: Source, step: number): { step: number; norms: Map<number, number> } | null {
  if (!(tables.collectives.total || tables.groups.total || tables.spans.total)) return null;
  const found = new Map<number, Map<number, number>>();
  for (const { columns: c, length, minStep, maxStep } of tables.steps.segments) {
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
export function tilesOf({ tables }: Source, step: number, id: number): Tile[] {
  const found = new Map<number, Tile[]>();
  tables.gradient_tiles.each(null, (c, i, segment) => {
    const [at, values, histogram] = [c.step[i], segment.lists.values[i], segment.lists.histogram[i]];
    if (c.parameter_id[i] !== id || at > step || !values) return;
    const tile = { rank: c.rank[i], step: at, height: c.height[i], width: c.width[i], values, histogram: histogram ?? [] };
    found.set(at, [...(found.get(at) ?? []), tile]);
  });
  const [best] = [...found].sort((a, b) => b[1].length - a[1].length || b[0] - a[0]);
  return best ? best[1].sort((a, b) => a.rank - b.rank) : [];
}

/** Whether there is a value, or one that is known not to be finite: NaN stands for both. */
function known(value: number, nonfinite: number): boolean {
  return !Number.isNaN(value) || nonfinite > 0;
}

function stores(source: Source, step: number): TableStore[] {
  const extra = source.fetched(step)?.gradients;
  return extra?.total ? [source.tables.gradients, extra] : [source.tables.gradients];
}
