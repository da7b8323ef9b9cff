// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Gradients of one step as a matrix of module or parameter x rank.

export interface Parameter {
  readonly id: number;
  readonly name: string;
  readonly shape: string;
  readonly bucket: number;
  /** Number of elements, NaN where unknown. */
  readonly elements: number;
  /** Class of the module that owns it. */
  readonly module: string;
}

/** One value a rank of one parameter; NaN where unknown. */
export interface GradientRow {
  readonly id: number;
  readonly rank: number;
  readonly ready: number;
  readonly local: number;
  readonly synced: number;
  readonly nonfinite: number;
}

export const GRADIENT_METRICS = {
  local: { label: "local norm", unit: "", what: "L2 norm before averaging, log scale", log: true },
  synced: { label: "synced norm", unit: "", what: "L2 norm after averaging, log scale", log: true },
  ready: { label: "ready", unit: "ms", what: "ms after the first gradient of the rank", log: false },
  nonfinite: {
    label: "non-finite share",
    unit: "%",
    what: "NaN and infinite values, % of the local gradient's elements, log scale",
    log: true,
  },
  disagreement: {
    label: "disagreement",
    unit: "%",
    what: "a rank's synced norm below the largest, % of it, log scale",
    log: true,
  },
} as const;

export type GradientMetric = keyof typeof GRADIENT_METRICS;

export interface Node {
  readonly path: string;
  readonly label: string;
  readonly depth: number;
  readonly leaf: boolean;
  readonly ids: readonly number[];
  /** Elements of each of `ids`. */
  readonly sizes: readonly number[];
}

export type RowsBy = "layer" | "parameter" | "bucket";

/** The lines of the map: the tree of modules, every parameter, or DDP's buckets with their parameters under them. */
export function linesBy(parameters: readonly Parameter[], by: RowsBy): Node[] {
  if (by === "layer") return tree(parameters);
  const sorted = [...parameters].sort((a, b) => a.id - b.id);
  if (by === "parameter") return sorted.map((p) => leaf(p, p.name, 0));
  const buckets = new Map<number, Parameter[]>();
  for (const p of sorted) buckets.set(p.bucket, [...(buckets.get(p.bucket) ?? []), p]);
  return [...buckets]
    .sort(([a], [b]) => (a < 0 ? 1 : b < 0 ? -1 : a - b))
    .flatMap(([bucket, list]) => {
      const label = bucket < 0 ? "no bucket" : `bucket ${bucket}`;
      return [branch(list, label, label, 0), ...list.map((p) => leaf(p, p.name, 1))];
    });
}

function leaf(p: Parameter, label: string, depth: number): Node {
  return { path: p.name, label, depth, leaf: true, ids: [p.id], sizes: [p.elements] };
}

function branch(list: readonly Parameter[], path: string, label: string, depth: number): Node {
  return { path, label, depth, leaf: false, ids: list.map((m) => m.id), sizes: list.map((m) => m.elements) };
}

/** The tree of modules, depth first in the model's order; single children are merged into their parents' line. */
export function tree(parameters: readonly Parameter[]): Node[] {
  const out: Node[] = [];
  walk(
    [...parameters].sort((a, b) => a.id - b.id),
    "",
    0,
    out,
  );
  return out;
}

function walk(list: readonly Parameter[], prefix: string, depth: number, out: Node[]): void {
  const groups = new Map<string, Parameter[]>();
  for (const p of list) {
    const rest = p.name.slice(prefix.length);
    const dot = rest.indexOf(".");
    const head = dot < 0 ? rest : rest.slice(0, dot);
    groups.set(head, [...(groups.get(head) ?? []), p]);
  }
  for (const [head, members] of groups) {
    let path = prefix + head;
    if (members.length === 1) {
      out.push(leaf(members[0], members[0].name.slice(prefix.length), depth));
      continue;
    }
    // A chain of modules that hold nothing but one module is one line.
    for (let next = common(members, path); next !== path; next = common(members, path)) path = next;
    out.push(branch(members, path, path.slice(prefix.length), depth));
    walk(members, `${path}.`, depth + 1, out);
  }
}

function common(members: readonly Parameter[], path: string): string {
  const heads = new Set(members.map((m) => m.name.slice(path.length + 1).split(".")[0]));
  const [head] = heads;
  return heads.size === 1 && members.every((m) => m.name.startsWith(`${path}.${head}.`)) ? `${path}.${head}` : path;
}

/** Nodes shown when those in `folded` hide what is under them. */
export function visible(nodes: readonly Node[], folded: ReadonlySet<string>): Node[] {
  const out: Node[] = [];
  let hiddenBelow = Number.POSITIVE_INFINITY;
  for (const node of nodes) {
    if (node.depth > hiddenBelow) continue;
    hiddenBelow = !node.leaf && folded.has(node.path) ? node.depth : Number.POSITIVE_INFINITY;
    out.push(node);
  }
  return out;
}

/** Folds the deepest levels first until at most `most` lines are left, or only the top. */
export function foldTo(nodes: readonly Node[], most: number): Set<string> {
  const deepest = Math.max(0, ...nodes.map((n) => n.depth));
  for (let depth = deepest; depth > 0; depth--) {
    const folded = new Set(nodes.filter((n) => !n.leaf && n.depth >= depth).map((n) => n.path));
    if (visible(nodes, folded).length <= most) return folded;
  }
  return new Set(nodes.filter((n) => !n.leaf).map((n) => n.path));
}

/** Values of a metric, node by node and rank by rank (row-major). */
export function values(
  nodes: readonly Node[],
  ranks: readonly number[],
  rows: readonly GradientRow[],
  metric: GradientMetric,
): Float64Array {
  const at = new Map<string, GradientRow>();
  const first = new Map<number, number>();
  const most = new Map<number, number>();
  const elements = new Map(nodes.flatMap((n) => n.sizes.map((size, i) => [n.ids[i], size] as const)));
  for (const row of rows) {
    at.set(`${row.id}/${row.rank}`, row);
    if (row.ready < (first.get(row.rank) ?? Number.POSITIVE_INFINITY)) first.set(row.rank, row.ready);
    if (row.synced > (most.get(row.id) ?? 0)) most.set(row.id, row.synced);
  }
  const out = new Float64Array(nodes.length * ranks.length).fill(Number.NaN);
  nodes.forEach((node, n) => {
    ranks.forEach((rank, r) => {
      const list = node.ids.map((id) => at.get(`${id}/${rank}`)).filter((row): row is GradientRow => row !== undefined);
      out[n * ranks.length + r] =
        metric === "nonfinite" ? nonfiniteShare(list, elements) : combine(list, metric, first.get(rank) ?? Number.NaN, most);
    });
  });
  return out;
}

/** In % of the elements whose gradients were counted. */
function nonfiniteShare(rows: GradientRow[], elements: ReadonlyMap<number, number>): number {
  const counted = rows.filter((r) => !Number.isNaN(r.nonfinite) && (elements.get(r.id) ?? 0) > 0);
  return counted.length ? (100 * sum(counted.map((r) => r.nonfinite))) / sum(counted.map((r) => elements.get(r.id)!)) : Number.NaN;
}

function combine(rows: GradientRow[], metric: Exclude<GradientMetric, "nonfinite">, first: number, most: Map<number, number>): number {
  if (!rows.length) return Number.NaN;
  if (metric === "ready") return Math.max(...rows.map((r) => r.ready)) - first;
  if (metric === "disagreement") {
    const shares = rows.map((r) => (most.get(r.id) ? (most.get(r.id)! - r.synced) / most.get(r.id)! : 0));
    return Number.isNaN(sum(shares)) && shares.every(Number.isNaN)
      ? Number.NaN
      : 100 * Math.max(...shares.map((s) => (Number.isNaN(s) ? 1 : s)));
  }
  // Of a norm that is not finite nothing but that can be said; where it is unknown the others stand for it.
  if (rows.some((r) => Number.isNaN(r[metric]) && r.nonfinite > 0)) return Number.POSITIVE_INFINITY;
  const norms = rows.map((r) => r[metric]).filter((v) => !Number.isNaN(v));
  return norms.length ? Math.sqrt(sum(norms.map((v) => v * v))) : Number.NaN;
}

function sum(list: number[]): number {
  return list.reduce((a, b) => a + b, 0);
}

export interface Verdict {
  readonly good: boolean;
  readonly text: string;
}

/** What to read from the gradients, in words; `flat` is each rank's norm over all synchronised gradients of one step. */
export function verdicts(
  rows: readonly GradientRow[],
  names: ReadonlyMap<number, string>,
  flat: ReadonlyMap<number, number> | null,
): Verdict[] {
  const out: Verdict[] = [];
  const counted = rows.filter((r) => !Number.isNaN(r.nonfinite));
  const bad = counted.filter((r) => r.nonfinite > 0);
  if (flat) {
    const sorted = [...flat].sort((a, b) => a[1] - b[1]);
    const [low, high] = [sorted[0], sorted[sorted.length - 1]];
    const agree = high[1] - low[1] <= 1e-4 * Math.abs(high[1]);
    if (!agree) out.push({ good: false, text: differ(rows, names, low[0], high[0]) });
    // Norms that are no numbers are left out: those that agree are of an earlier step.
    else if (!bad.length) out.push({ good: true, text: "synced gradients agree on all ranks" });
  }
  if (bad.length) {
    const who = [...new Set(bad.map((r) => r.rank))].sort((a, b) => a - b).join(", ");
    out.push({ good: false, text: `non-finite values on rank ${who}, in ${names.get(bad[0].id) ?? bad[0].id}` });
  } else if (counted.length) out.push({ good: true, text: "no non-finite value" });
  return out;
}

function differ(rows: readonly GradientRow[], names: ReadonlyMap<number, string>, low: number, high: number): string {
  const apart = worstDisagreement(rows.filter((r) => !Number.isNaN(r.synced)));
  const where = apart.share > 1e-4 ? `, most in ${names.get(apart.id) ?? apart.id}` : "";
  return `synced gradients differ between rank ${low} and rank ${high}${where}`;
}

function worstDisagreement(rows: readonly GradientRow[]): { id: number; share: number } {
  const range = new Map<number, [number, number]>();
  for (const r of rows) {
    const [low, high] = range.get(r.id) ?? [r.synced, r.synced];
    range.set(r.id, [Math.min(low, r.synced), Math.max(high, r.synced)]);
  }
  let worst = { id: -1, share: 0 };
  for (const [id, [low, high]] of range) if (high > 0 && (high - low) / high > worst.share) worst = { id, share: (high - low) / high };
  return worst;
}
