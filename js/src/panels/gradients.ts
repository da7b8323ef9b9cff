// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Gradient map: module or parameter x rank at one step.
import { choice, fill, h, say } from "../dom";
import { csvField, duration, integer, number } from "../format";
import {
  foldTo,
  GRADIENT_METRICS,
  type GradientMetric,
  type GradientRow,
  type Node,
  type Parameter,
  tree,
  values,
  verdicts,
  visible,
} from "../gradients";
import { type Context, copyMenu, frame, type Panel } from "../panel";
import type { Pen } from "../pen";
import { css, inkOn, ramp } from "../scales";
import { place, Surface } from "../surface";
import { tilesView } from "./tiles";

const KEYS = "up and down choose a line, Enter folds or unfolds it, left and right change the step";
const COLUMNS: Record<GradientMetric, string> = {
  local: "local_norm",
  synced: "synced_norm",
  ready: "ready_ns",
  nonfinite: "nonfinite",
  disagreement: "synced_norm",
};
const HIGH = 20;
const MOST = 14;

export class GradientsPanel implements Panel {
  readonly root: HTMLElement;
  private readonly frame = frame("gradients", "Gradients");
  private readonly surface: Surface;
  private readonly words = h("div.dts-verdicts");
  private readonly slider: HTMLInputElement;
  private readonly metricChoice: ReturnType<typeof choice>;
  private readonly pictures = h("div.dts-tiles");
  private readonly empty = h("p.dts-sub");
  private metric: GradientMetric = "local";
  private picked = false;
  private nodes: Node[] = [];
  private shown: Node[] = [];
  private folded: Set<string> | null = null;
  private line = -1;
  private built = "";
  private parameters: Parameter[] = [];
  private table: { ranks: number[]; values: Float64Array; step: number; left: number } | null = null;

  constructor(private readonly context: Context) {
    this.surface = new Surface("gradients by parameter and rank", KEYS, () => context.redraw(), context.signal);
    const options = (Object.keys(GRADIENT_METRICS) as GradientMetric[]).map((m) => [m, GRADIENT_METRICS[m].label] as const);
    this.metricChoice = choice("show", options, this.metric, (m) => {
      this.metric = m as GradientMetric;
      this.picked = true;
      context.redraw();
    });
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": "step",
      oninput: () => context.go({ step: Number(this.slider.value), collective: null }),
    });
    this.frame.controls.append(
      h("label.dts-choice", {}, h("span", {}, "step"), this.slider),
      this.metricChoice,
      copyMenu(context, "gradients", this.surface, () => this.csv()),
    );
    this.frame.body.append(this.empty, h("div.dts-beside", {}, this.surface.root, this.words), this.pictures);
    this.root = this.frame.root;
    this.listen();
  }

  update(): void {
    if (this.root.hidden) return;
    const { model, place: here } = this.context;
    this.range();
    const wanted = here.step ?? model.matrix.lastStep;
    if (!this.picked) this.prefer(wanted);
    const found = model.gradients(wanted, COLUMNS[this.metric], this.metric === "synced" || this.metric === "disagreement");
    this.surface.root.parentElement!.hidden = !found;
    this.empty.hidden = !!found;
    if (!found) {
      const label = GRADIENT_METRICS[this.metric].label;
      say(
        this.empty,
        model.matrix.columns ? `No ${label} of a gradient has been recorded up to this step.` : "No step has been recorded yet.",
      );
      say(this.frame.sub, "");
      this.pictures.hidden = true;
      return;
    }
    this.build();
    const { from, to } = found;
    const at =
      from < to
        ? `steps ${integer(from)} to ${integer(to)}, each rank's last sample`
        : `step ${integer(to)}${to < wanted ? ", the last sample" : ""}`;
    say(this.frame.sub, `${GRADIENT_METRICS[this.metric].what} · ${at}`);
    this.draw(to, found.rows);
    tilesView(this.context, this.pictures, this.shown[this.line], wanted);
  }

  /** Shows what there is until the user has chosen: norms, else when gradients were ready. */
  private prefer(step: number): void {
    const found = (["local", "synced", "ready"] as const).find((m) => this.context.model.stepWith(step, COLUMNS[m]) !== null);
    this.metric = found ?? "local";
    this.metricChoice.select.value = this.metric;
  }

  private range(): void {
    const { model, place: here } = this.context;
    this.slider.max = String(Math.max(0, model.matrix.lastStep));
    this.slider.min = String(model.matrix.firstStep ?? 0);
    if (document.activeElement !== this.slider || this.context.following) this.slider.value = String(here.step ?? model.matrix.lastStep);
  }

  private build(): void {
    const { parameters } = this.context.model.tables;
    if (this.built === String(parameters.version)) return;
    this.built = String(parameters.version);
    this.parameters = this.context.model.parameters();
    this.nodes = tree(this.parameters);
    this.folded ??= this.nodes.length ? foldTo(this.nodes, MOST) : null;
  }

  private draw(step: number, rows: GradientRow[]): void {
    const ranks = [...new Set(rows.map((r) => r.rank))].sort((a, b) => a - b);
    const known = this.nodes.length
      ? this.nodes
      : [...new Set(rows.map((r) => r.id))]
          .sort((a, b) => a - b)
          .map((id) => ({ path: String(id), label: `parameter ${id}`, depth: 0, leaf: true, ids: [id] }));
    this.shown = visible(known, this.folded ?? new Set());
    this.table = { ranks, values: values(this.shown, ranks, rows, this.metric), step, left: 0 };
    this.surface.paint(this.shown.length * HIGH + 24, (pen, width) => this.cells(pen, width));
    const names = new Map(this.parameters.map((p) => [p.id, p.name]));
    const list = verdicts(rows, names, this.context.model.syncedNorms(step)?.norms ?? null).map((v) =>
      h("div", { class: v.good ? "" : "dts-costs" }, `${v.good ? "✓" : "✕"} ${v.text}`),
    );
    fill(this.words, ...list, h("div.dts-sub", {}, this.spread(rows, names)));
  }

  private spread(rows: GradientRow[], names: Map<number, string>): string {
    // Within one rank: ranks may have been sampled at different steps.
    const timed = rows.filter((r) => !Number.isNaN(r.ready) && r.rank === rows[0].rank).sort((a, b) => a.ready - b.ready);
    if (timed.length < 2) return "";
    const [first, last] = [timed[0], timed[timed.length - 1]];
    const apart = duration(last.ready - first.ready);
    return `ready on rank ${first.rank}: ${names.get(first.id) ?? first.id} first, ${names.get(last.id) ?? last.id} last, ${apart} apart`;
  }

  private cells(pen: Pen, width: number): void {
    const { colors } = this.context;
    const { ranks, values: cells } = this.table!;
    const left = Math.min(220, Math.max(96, ...this.shown.map((n) => pen.measure(n.label) + n.depth * 12 + 26)));
    this.table!.left = left;
    const cell = Math.min(160, (width - left - 4) / Math.max(1, ranks.length));
    const scale = scaleOf(cells, GRADIENT_METRICS[this.metric].log);
    this.shown.forEach((node, n) => {
      const y = n * HIGH;
      this.label(pen, node, n, y, left);
      ranks.forEach((_, r) => {
        const v = cells[n * ranks.length + r];
        if (Number.isNaN(v)) return;
        const color = ramp(colors.cost, scale(v));
        pen.rect(left + r * cell, y + 1, cell > 6 ? cell - 3 : cell, HIGH - 3, css(color));
        if (cell > 46) pen.text(number(v), left + (r + 0.5) * cell - 1.5, y + HIGH / 2, { fill: inkOn(color), align: "center", size: 11 });
      });
    });
    const every = Math.max(1, Math.ceil(46 / cell));
    ranks.forEach((rank, r) => {
      if (r % every === 0)
        pen.text(`rank ${rank}`, left + (r + 0.5) * cell, this.shown.length * HIGH + 12, { fill: colors.quiet, align: "center", size: 11 });
    });
  }

  private label(pen: Pen, node: Node, n: number, y: number, left: number): void {
    const { colors } = this.context;
    if (n === this.line) pen.rect(0, y + 1, left - 4, HIGH - 3, colors.idle);
    const indent = 6 + node.depth * 12;
    if (!node.leaf) pen.text(this.folded?.has(node.path) ? "▸" : "▾", indent, y + HIGH / 2, { fill: colors.quiet, size: 11 });
    pen.within(indent + 13, y, left - indent - 20, HIGH, () =>
      pen.text(node.label, indent + 13, y + HIGH / 2, { fill: node.leaf ? colors.quiet : colors.ink }),
    );
  }

  private listen(): void {
    const { canvas } = this.surface;
    canvas.addEventListener("click", (e) => {
      const [x, y] = place(e, canvas);
      this.pick(Math.floor(y / HIGH), x < (this.table?.left ?? 0));
    });
    canvas.addEventListener("pointermove", (e) => this.hover(...place(e, canvas)));
    canvas.addEventListener("pointerleave", () => this.surface.unhint());
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  private pick(line: number, toggle: boolean): void {
    const node = this.shown[line];
    if (!node) return;
    this.line = line;
    if (toggle && !node.leaf && this.folded && !this.folded.delete(node.path)) this.folded.add(node.path);
    this.surface.voice.textContent = node.leaf ? node.path : `${node.path}, ${this.folded?.has(node.path) ? "folded" : "unfolded"}`;
    this.context.redraw();
  }

  private hover(x: number, y: number): void {
    const node = this.shown[Math.floor(y / HIGH)];
    const t = this.table;
    if (!node || !t) return this.surface.unhint();
    const cell = Math.min(160, (this.surface.width - t.left - 4) / Math.max(1, t.ranks.length));
    const r = Math.floor((x - t.left) / cell);
    const value = r >= 0 && r < t.ranks.length ? t.values[this.shown.indexOf(node) * t.ranks.length + r] : Number.NaN;
    const { label, unit } = GRADIENT_METRICS[this.metric];
    const p = node.leaf ? this.parameters.find((q) => q.id === node.ids[0]) : undefined;
    const about = p ? `${p.shape}${p.bucket >= 0 ? `, bucket ${p.bucket}` : ""}` : `${node.ids.length} parameters`;
    this.surface.hint(x, y, node.path, about, ...(Number.isNaN(value) ? [] : [`rank ${t.ranks[r]}: ${label} ${number(value)} ${unit}`]));
  }

  private key(e: KeyboardEvent): void {
    const step = this.table?.step ?? 0;
    const acts: Record<string, () => void> = {
      ArrowDown: () => this.pick(Math.min(this.line + 1, this.shown.length - 1), false),
      ArrowUp: () => this.pick(Math.max(this.line - 1, 0), false),
      Enter: () => this.pick(this.line, true),
      ArrowLeft: () => this.context.go({ step: Math.max(0, step - 1), collective: null }),
      ArrowRight: () => this.context.go({ step: Math.min(this.context.model.matrix.lastStep, step + 1), collective: null }),
    };
    if (!acts[e.key]) return;
    acts[e.key]();
    e.preventDefault();
    e.stopPropagation();
  }

  private csv(): string {
    const t = this.table;
    const lines = [`parameter,rank,step,${this.metric}`];
    this.shown.forEach((node, n) =>
      t?.ranks.forEach((rank, r) => {
        lines.push([node.path, rank, t.step, t.values[n * t.ranks.length + r]].map(csvField).join());
      }),
    );
    return lines.join("\n");
  }
}

/** Place on the ramp of a value, between the smallest and largest positive ones; zero is blank. */
function scaleOf(cells: Float64Array, log: boolean): (v: number) => number {
  const known = cells.filter((v) => v > 0 && Number.isFinite(v));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (!known.length) return () => 0;
  if (!log) return (v) => 0.1 + 0.75 * (v / high);
  const wide = Math.max(Math.log10(high / low), 1);
  return (v) => (v === 0 ? 0 : Number.isFinite(v) ? 0.15 + 0.7 * (1 - Math.log10(high / v) / wide) : 1);
}
