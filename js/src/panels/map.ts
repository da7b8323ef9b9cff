// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Overlap map: rank x step, one metric at a time.
import { choice, say } from "../dom";
import { groupsByRank, hosts } from "../facts";
import { csvField, duration, integer, number, plural } from "../format";
import { drawMap } from "../mapdraw";
import { type Geometry, geometry, hit, type MapState, margin } from "../mapgeometry";
import { PROFILED, RECORDED } from "../matrix";
import { METRIC_NAMES, METRICS, type MetricName } from "../metrics";
import type { Model } from "../model";
import { type Context, copyMenu, frame, type Panel } from "../panel";
import { place, Surface } from "../surface";

type Order = "rank" | "cost";
type Group = "none" | "host" | "group";
const KEYS = "arrows choose a rank and step, plus and minus zoom, Home and End go to the first and newest step, 0 shows all";

/** What the map begins with where a page shows only that panel. */
const BEGINS: Readonly<Record<string, MetricName>> = { waits: "wait", bandwidth: "bandwidth" };

/** How often margins and ranges are reckoned at most. */
const SUMMARY_MS = 1000;

export class MapPanel implements Panel {
  readonly root: HTMLElement;
  private metric: MetricName;
  private order: Order = "rank";
  private group: Group = "none";
  private readonly groups: ReturnType<typeof choice>;
  private timer = 0;
  private zoom: [number, number] | null = null;
  private hover: MapState["hover"] = null;
  private readonly frame = frame("map", "");
  private readonly surface: Surface;
  private readonly image = document.createElement("canvas");
  private geometry: Geometry = geometry(600, 1, 1, 1);
  private state: MapState | null = null;
  private summary: {
    key: string;
    version: number;
    at: number;
    range: MapState["range"];
    longer: number;
    columnMeans: Float32Array;
    rowMeans: Float32Array;
    order: number[];
    blocks: Map<number, string>;
  } | null = null;

  constructor(
    private readonly context: Context,
    only = "",
  ) {
    this.metric = BEGINS[only] ?? "exposed";
    this.surface = new Surface("map of ranks and steps", KEYS, () => context.redraw(), context.signal);
    const options = METRIC_NAMES.map((m) => [m, METRICS[m].label.toLowerCase()] as const);
    const orders = (["rank", "cost"] as const).map((o) => [o, o] as const);
    const groups = [
      ["none", "none"],
      ["host", "host"],
      ["group", "process group"],
    ] as const;
    this.groups = choice("group by", groups, this.group, (g) =>
      this.change(() => {
        this.group = g as Group;
      }),
    );
    this.frame.controls.append(
      choice("metric", options, this.metric, (m) =>
        this.change(() => {
          this.metric = m as MetricName;
        }),
      ),
      choice("order", orders, this.order, (o) =>
        this.change(() => {
          this.order = o as Order;
        }),
      ),
      this.groups,
      copyMenu(context, "map", this.surface, () => this.csv()),
    );
    this.frame.body.append(this.surface.root);
    this.root = this.frame.root;
    this.listen();
  }

  update(): void {
    const { model, colors } = this.context;
    if (this.metric === "wait" || this.metric === "bandwidth") model.settle();
    const { matrix } = model;
    say(this.frame.title, METRICS[this.metric].label);
    say(
      this.frame.sub,
      matrix.stride > 1 ? `${METRICS[this.metric].what}; ${matrix.stride} steps a cell, the worst shown` : METRICS[this.metric].what,
    );
    this.frame.title.title = METRICS[this.metric].means;
    this.root.hidden = !matrix.columns;
    if (!matrix.columns) return;
    const [from, to] = this.window();
    const summary = this.summarize();
    const wide = this.surface.root.clientWidth;
    const gutter = summary.blocks.size
      ? Math.min(140, wide / 5, 16 + 7 * Math.max(...[...summary.blocks.values()].map((n) => n.length)))
      : 0;
    this.geometry = geometry(wide, matrix.ranks.length, to - from, model.grows ? 14 : 56, gutter);
    const state: MapState = {
      matrix,
      metric: this.metric,
      from,
      to,
      findings: model.findings,
      hover: this.hover,
      step: this.context.place.step,
      rank: this.context.place.rank,
      blockKind: this.group,
      ...summary,
    };
    this.state = state;
    const ratio = window.devicePixelRatio || 1;
    const shown = this.surface.paint(this.geometry.total, (pen) => drawMap(pen, this.geometry, state, colors, ratio, () => this.image));
    // Read by benchmarks/live.py: up to which step the picture has every rank.
    if (shown) this.surface.canvas.dataset.step = String(model.newestWhole ?? "");
  }

  private window(): [number, number] {
    const { columns } = this.context.model.matrix;
    if (!this.zoom) return [0, columns];
    const from = Math.max(0, Math.min(this.zoom[0], columns - 2));
    return [from, Math.max(from + 2, Math.min(columns, this.zoom[1]))];
  }

  /** Ranges, marginals and order, anew at most once a second while rows come in. */
  private summarize(): NonNullable<MapPanel["summary"]> {
    const { matrix } = this.context.model;
    const key = [this.metric, this.order, this.group, matrix.stride, matrix.ranks.length].join();
    const old = this.summary;
    const now = performance.now();
    if (old?.key === key && old.version === matrix.version) return this.extended(old);
    if (old?.key === key && now - old.at < SUMMARY_MS) {
      this.later(old.at + SUMMARY_MS - now);
      return this.extended(old);
    }
    this.offer();
    const { columns: columnMeans, rows: rowMeans } = matrix.means(this.metric);
    this.summary = {
      key,
      version: matrix.version,
      at: now,
      range: matrix.range(this.metric),
      longer: matrix.sampledLonger,
      columnMeans,
      rowMeans,
      ...this.ordered(rowMeans),
    };
    return this.summary;
  }

  /** Offers only groups that are known: a trace tells no host, and most runs have one process group. */
  private offer(): void {
    const { model } = this.context;
    const known: Record<string, boolean> = {
      none: true,
      host: hosts(model).size > 0,
      group: groupsByRank(model, model.matrix.ranks.length).size > 0,
    };
    for (const option of this.groups.select.options) option.disabled = !known[option.value] && option.value !== this.group;
  }

  /** The last rows of a run are followed by none that would draw again. */
  private later(ms: number): void {
    this.timer ||= window.setTimeout(() => {
      this.timer = 0;
      this.context.redraw(this);
    }, ms);
  }

  private extended(old: NonNullable<MapPanel["summary"]>): NonNullable<MapPanel["summary"]> {
    const { matrix } = this.context.model;
    if (old.columnMeans.length >= matrix.columns) return old;
    const first = Math.max(0, old.columnMeans.length - 1);
    const means = matrix.means(this.metric, first).columns;
    means.set(old.columnMeans.subarray(0, first));
    old.columnMeans = means;
    return old;
  }

  private ordered(rowMeans: Float32Array): { order: number[]; blocks: Map<number, string> } {
    const { model } = this.context;
    const { ranks } = model.matrix;
    const order = ranks.map((_, row) => row).sort((a, b) => ranks[a] - ranks[b]);
    const blocks = new Map<number, string>();
    const sign = METRICS[this.metric].worse === "high" ? -1 : 1;
    if (this.order === "cost") order.sort((a, b) => sign * (rowMeans[a] - rowMeans[b]) || ranks[a] - ranks[b]);
    const names = this.blockNames();
    if (names.size) {
      const name = (row: number) => names.get(ranks[row]) ?? "none";
      // Blocks in the order of their first ranks, which are the lowest or the most costly.
      const first = new Map<string, number>();
      order.forEach((row, i) => first.has(name(row)) || first.set(name(row), i));
      const place = new Map(order.map((row, i) => [row, i]));
      order.sort((a, b) => first.get(name(a))! - first.get(name(b))! || place.get(a)! - place.get(b)!);
      order.forEach((row, i) => {
        if (!i || name(row) !== name(order[i - 1])) blocks.set(i, name(row));
      });
    }
    return { order, blocks };
  }

  /** What ranks are grouped by, by rank; empty where they are not. */
  private blockNames(): Map<number, string> {
    const { model } = this.context;
    if (this.group === "host") return hosts(model);
    return this.group === "group" ? groupsByRank(model, model.matrix.ranks.length) : new Map();
  }

  private change(change: () => void): void {
    change();
    this.summary = null;
    this.context.redraw(this);
  }

  private listen(): void {
    const { canvas } = this.surface;
    canvas.addEventListener("pointermove", (e) => this.point(...place(e, canvas)));
    canvas.addEventListener("pointerleave", () => this.point(-1, -1));
    canvas.addEventListener("click", (e) => {
      const found = this.state && hit(this.geometry, this.state, ...place(e, canvas));
      if (found) this.choose(found.row, found.column);
    });
    canvas.addEventListener(
      "wheel",
      (e) => {
        if (!e.ctrlKey && !e.shiftKey && Math.abs(e.deltaX) <= Math.abs(e.deltaY)) return;
        e.preventDefault();
        if (e.ctrlKey) this.scale(Math.exp(e.deltaY / 300), place(e, canvas)[0]);
        else this.pan((e.deltaX || e.deltaY) / this.geometry.cell);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  private point(x: number, y: number): void {
    const found = this.state ? hit(this.geometry, this.state, x, y) : null;
    if (!found && this.sum(x, y)) return;
    if (found?.row === this.hover?.row && found?.column === this.hover?.column) return;
    this.hover = found;
    if (found) this.surface.hint(x, y, ...this.words(found.row, found.column));
    else this.surface.unhint();
    this.context.redraw(this);
  }

  /** Over a margin: the mean and total there. */
  private sum(x: number, y: number): boolean {
    const found = this.state && margin(this.geometry, this.state, x, y);
    if (!found) return false;
    const { matrix } = this.context.model;
    const grid = matrix.pyramids[this.metric].levels[0];
    const cells =
      "row" in found
        ? Array.from({ length: matrix.columns }, (_, c) => grid.get(this.state!.order[found.row], c))
        : matrix.ranks.map((_, row) => grid.get(row, found.column));
    const known = cells.filter((v) => !Number.isNaN(v));
    const total = known.reduce((a, b) => a + b, 0);
    const { unit, label } = METRICS[this.metric];
    const where = "row" in found ? `rank ${matrix.ranks[this.state!.order[found.row]]}` : `step ${integer(matrix.stepAt(found.column))}`;
    const many = "row" in found ? plural(known.length, "step") : plural(known.length, "rank");
    const sum = unit === "ms" ? `, total ${duration(total)}` : "";
    this.surface.hint(
      x,
      y,
      `${where}: ${label.toLowerCase()}`,
      `mean ${number(total / known.length)}${unit ? ` ${unit}` : ""}${sum} over ${many}`,
    );
    return true;
  }

  private words(row: number, column: number): string[] {
    const { matrix } = this.context.model;
    const rank = matrix.ranks[this.state!.order[row]];
    const step = matrix.stepAt(column);
    const value = matrix.get(this.metric, rank, step);
    const { unit, label } = METRICS[this.metric];
    const rests = matrix.evidenceOf(rank, step);
    const seen =
      rests === PROFILED ? "exact, from a profiler" : rests === RECORDED ? "from its recorded collectives" : "estimated by the rank itself";
    const took = matrix.get("step", rank, step);
    return [
      `rank ${rank}, step ${integer(step)}${matrix.stride > 1 ? ` to ${integer(step + matrix.stride - 1)}` : ""}`,
      `${label.toLowerCase()} ${number(value)}${unit ? ` ${unit}` : ""}`,
      `${Number.isNaN(took) ? "" : `step ${duration(took)}, `}${seen}`,
      ...(this.slowed(step) ? ["slowed by looking: a profiler window or another probe of ours"] : []),
      ...[this.blockNames().get(rank)].filter((name) => name !== undefined).map((name) => `${this.group} ${name}`),
    ];
  }

  /** Whether a probe of ours slowed a step of the cell that begins with this one. */
  private slowed(first: number): boolean {
    const { slowed, stride } = this.context.model.matrix;
    return slowed.size > 0 && Array.from({ length: stride }, (_, i) => first + i).some((step) => slowed.has(step));
  }

  private choose(row: number, column: number): void {
    const { matrix } = this.context.model;
    const rank = matrix.ranks[this.state!.order[row]];
    const first = matrix.stepAt(column);
    const last = Math.min(first + matrix.stride - 1, matrix.lastStep);
    this.context.go({ rank, step: worstStep(this.context.model, this.metric, rank, first, last), collective: null });
    this.surface.voice.textContent = this.words(row, column).join(", ");
  }

  private key(e: KeyboardEvent): void {
    const { matrix } = this.context.model;
    const { order } = this.state ?? { order: [] };
    const column = this.context.place.step === null ? matrix.columns - 1 : matrix.column(this.context.place.step);
    const row = Math.max(
      0,
      order.findIndex((r) => matrix.ranks[r] === this.context.place.rank),
    );
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      Home: [0, -column],
      End: [0, matrix.columns - 1 - column],
    };
    const move = moves[e.key];
    if (move) {
      const clamp = (v: number, n: number) => Math.min(Math.max(v, 0), n - 1);
      this.choose(clamp(row + move[0], order.length), clamp(column + move[1], matrix.columns));
    } else if (e.key === "+" || e.key === "=") this.scale(0.7);
    else if (e.key === "-") this.scale(1.4);
    else if (e.key === "0")
      this.change(() => {
        this.zoom = null;
      });
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  private scale(factor: number, x = this.geometry.left + this.geometry.width / 2): void {
    const [from, to] = this.window();
    const at = from + Math.max(0, x - this.geometry.left) / this.geometry.cell;
    const next: [number, number] = [Math.floor(at - (at - from) * factor), Math.ceil(at + (to - at) * factor)];
    this.zoom = next[0] <= 0 && next[1] >= this.context.model.matrix.columns ? null : next;
    this.context.redraw(this);
  }

  private pan(columns: number): void {
    if (!this.zoom) return;
    const by = Math.sign(columns) * Math.max(1, Math.round(Math.abs(columns)));
    const bounded = Math.max(-this.zoom[0], Math.min(by, this.context.model.matrix.columns - this.zoom[1]));
    this.zoom = [this.zoom[0] + bounded, this.zoom[1] + bounded];
    this.context.redraw(this);
  }

  private csv(): string {
    const { matrix } = this.context.model;
    const lines = [`rank,step,${this.metric}${METRICS[this.metric].unit ? `_${METRICS[this.metric].unit}` : ""},exact`];
    for (const row of this.state?.order ?? []) {
      for (let c = 0; c < matrix.columns; c++) {
        const v = matrix.pyramids[this.metric].levels[0].get(row, c);
        if (!Number.isNaN(v)) lines.push([matrix.ranks[row], matrix.stepAt(c), v, matrix.marked(row, c) ? 1 : 0].map(csvField).join());
      }
    }
    return lines.join("\n");
  }
}

/** Of the steps that share a cell the one that it shows, where its row is still here; else the first. */
function worstStep(model: Model, metric: MetricName, rank: number, first: number, last: number): number {
  if (first === last) return first;
  let [found, most] = [first, Number.NEGATIVE_INFINITY];
  const wanted = new Set(Array.from({ length: last - first + 1 }, (_, i) => first + i));
  model.tables.steps.eachOf(wanted, (c, i) => {
    const took = c.end_ns[i] - c.start_ns[i];
    const value = metric === "exposed" ? c.exposed_ms[i] : metric === "ratio" ? -c.overlap_ms[i] / c.comm_ms[i] : took;
    if (c.rank[i] === rank && value > most) [found, most] = [c.step[i], value];
  });
  return found;
}
