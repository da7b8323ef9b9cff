// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Gradient map: layer, parameter or bucket x rank at one step.
import { button, choice, fill, h, say } from "../dom";
import { csvField, duration, integer, number } from "../format";
import { drawGradients, type GradientState, type Grid, gradientHeight, gradientHit, HIGH, TOP } from "../gradientdraw";
import { gradientsUpTo, parametersOf, type Sampled, stepAfter, stepWith, syncedNorms } from "../gradientrows";
import {
  foldTo,
  GRADIENT_METRICS,
  type GradientMetric,
  type GradientRow,
  linesBy,
  type Node,
  type Parameter,
  type RowsBy,
  values,
  verdicts,
  visible,
} from "../gradients";
import { type Context, copyMenu, frame, type Panel } from "../panel";
import { place, Surface } from "../surface";
import { tilesView } from "./tiles";

const KEYS = "up and down choose a line, Enter folds or unfolds it, left and right go to the sampled step before or after";
const COLUMNS: Record<GradientMetric, string> = {
  local: "local_norm",
  synced: "synced_norm",
  ready: "ready_ns",
  nonfinite: "nonfinite",
  disagreement: "synced_norm",
};
const MOST = 14;
const MOST_LINES = 400;
const PLAY_MS = 300;

export class GradientsPanel implements Panel {
  readonly root: HTMLElement;
  private readonly frame = frame("gradients", "Gradients");
  private readonly surface: Surface;
  private readonly scroll = h("div.dts-lines");
  private readonly words = h("div.dts-verdicts");
  private readonly slider: HTMLInputElement;
  private readonly at = h("output.dts-at");
  private readonly play: HTMLButtonElement;
  private readonly metricChoice: ReturnType<typeof choice>;
  private readonly rowsChoice: ReturnType<typeof choice>;
  private readonly copy: HTMLElement;
  private readonly pictures = h("div.dts-tiles");
  private readonly empty = h("p.dts-sub");
  private metric: GradientMetric = "local";
  private by: RowsBy = "layer";
  private picked = false;
  private playing = 0;
  private nodes: Node[] = [];
  private folded = new Set<string>();
  private line = -1;
  private built = "";
  private parameters: Parameter[] = [];
  private state: GradientState | null = null;
  private grid: Grid = { left: 0, cell: 1 };
  private step = 0;

  constructor(private readonly context: Context) {
    this.surface = new Surface("gradients by parameter and rank", KEYS, () => context.redraw(), context.signal);
    const options = (Object.keys(GRADIENT_METRICS) as GradientMetric[]).map((m) => [m, GRADIENT_METRICS[m].label] as const);
    this.metricChoice = choice("show", options, this.metric, (m) => {
      this.metric = m as GradientMetric;
      this.picked = true;
      context.redraw();
    });
    const rows = (["layer", "parameter", "bucket"] as const).map((name) => [name, name] as const);
    this.rowsChoice = choice("rows", rows, this.by, (by) => {
      this.by = by as RowsBy;
      this.line = -1;
      context.redraw();
    });
    this.slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "step", oninput: () => this.slide() });
    this.play = button("play", () => this.turnPlay(), "play through the sampled steps");
    this.copy = copyMenu(context, "gradients", this.surface, () => this.csv());
    this.frame.controls.append(
      h("label.dts-choice", {}, h("span", {}, "step"), this.slider, this.at),
      this.play,
      this.metricChoice,
      this.rowsChoice,
      this.copy,
    );
    this.scroll.append(this.surface.root);
    this.frame.body.append(this.empty, h("div.dts-beside", {}, this.scroll, this.words), this.pictures);
    this.root = this.frame.root;
    context.signal.addEventListener("abort", () => clearInterval(this.playing));
    this.listen();
  }

  update(): void {
    if (this.root.hidden) return;
    const { model, place: here } = this.context;
    this.range();
    const wanted = here.step ?? model.matrix.lastStep;
    if (!this.picked) this.prefer(wanted);
    const found = gradientsUpTo(model, wanted, COLUMNS[this.metric], this.metric === "synced" || this.metric === "disagreement");
    this.frame.controls.hidden = !model.matrix.columns;
    this.copy.hidden = !found;
    this.scroll.parentElement!.hidden = !found;
    this.empty.hidden = !!found;
    if (!found) return this.none();
    this.build();
    this.draw(found);
    say(this.frame.sub, `${GRADIENT_METRICS[this.metric].what} · ${when(found, wanted)}${this.cut()}`);
    this.pictures.hidden = !tilesView(this.context, this.pictures, this.state?.nodes[this.line], wanted);
  }

  private none(): void {
    const { matrix, status } = this.context.model;
    const { label } = GRADIENT_METRICS[this.metric];
    const none = status.live ? "No step has been recorded yet." : "No step was recorded in this run.";
    say(this.empty, matrix.columns ? `No ${label} of a gradient has been recorded up to this step.` : none);
    say(this.frame.sub, "");
    this.pictures.hidden = true;
  }

  private cut(): string {
    const all = visible(this.nodes, this.folded).length;
    return all > MOST_LINES ? ` · the first ${integer(MOST_LINES)} of ${integer(all)} lines` : "";
  }

  /** Shows what there is until the user has chosen: norms, else when gradients were ready. */
  private prefer(step: number): void {
    const found = (["local", "synced", "ready"] as const).find((m) => stepWith(this.context.model, step, COLUMNS[m]) !== null);
    this.metric = found ?? "local";
    this.metricChoice.select.value = this.metric;
  }

  private range(): void {
    const { model, place: here, following } = this.context;
    this.slider.max = String(Math.max(0, model.matrix.lastStep));
    this.slider.min = String(model.matrix.firstStep ?? 0);
    if (document.activeElement !== this.slider || following) this.slider.value = String(here.step ?? model.matrix.lastStep);
    say(this.at, this.slider.value);
    say(this.play, this.playing ? "pause" : "play");
  }

  private slide(): void {
    this.stop();
    this.context.go({ step: Number(this.slider.value), collective: null });
  }

  /** Goes through the sampled steps, from the first one when at the end; at the end a live run is followed. */
  private turnPlay(): void {
    if (this.playing) return this.stop();
    const { model } = this.context;
    const here = this.context.place.step ?? 0;
    if (stepAfter(model, here, COLUMNS[this.metric]) === null) this.context.drift({ step: model.matrix.firstStep ?? 0, collective: null });
    this.playing = window.setInterval(() => this.next(), PLAY_MS);
    this.context.redraw();
  }

  private next(): void {
    if (document.hidden) return;
    const { model } = this.context;
    const step = stepAfter(model, this.context.place.step ?? 0, COLUMNS[this.metric]);
    if (step !== null) return this.context.drift({ step, collective: null });
    this.stop();
    if (model.status.live) this.context.follow();
  }

  private stop(): void {
    clearInterval(this.playing);
    this.playing = 0;
    this.context.redraw();
  }

  private build(): void {
    const { version } = this.context.model.tables.parameters;
    const key = `${version}/${this.by}`;
    if (this.built === key) return;
    const other = !this.nodes.length || !this.built.endsWith(`/${this.by}`);
    this.built = key;
    this.parameters = parametersOf(this.context.model);
    const bucketed = this.parameters.some((p) => p.bucket >= 0);
    for (const option of this.rowsChoice.select.options) option.disabled = option.value === "bucket" && !bucketed;
    this.nodes = linesBy(this.parameters, this.by);
    if (other) this.folded = foldTo(this.nodes, MOST);
  }

  private draw({ rows, to }: Sampled): void {
    const ranks = [...new Set(rows.map((r) => r.rank))].sort((a, b) => a - b);
    const known = this.nodes.length ? this.nodes : nameless(rows);
    const nodes = visible(known, this.folded).slice(0, MOST_LINES);
    const { metric, folded, line } = this;
    this.step = to;
    this.state = { nodes, folded, ranks, values: values(nodes, ranks, rows, metric), metric, line, rank: this.context.place.rank };
    const state = this.state;
    this.surface.paint(gradientHeight(nodes.length), (pen, width) => {
      this.grid = drawGradients(pen, width, state, this.context.colors);
    });
    const names = new Map(this.parameters.map((p) => [p.id, p.name]));
    const list = verdicts(rows, names, syncedNorms(this.context.model, to)?.norms ?? null).map((v) =>
      h("div", { class: v.good ? "" : "dts-costs" }, `${v.good ? "✓" : "✕"} ${v.text}`),
    );
    fill(this.words, ...list, h("div.dts-sub", {}, spread(rows, names)));
  }

  private listen(): void {
    const { canvas } = this.surface;
    canvas.addEventListener("click", (e) => {
      if (!this.state) return;
      const { line, column } = gradientHit(this.grid, this.state, ...place(e, canvas));
      this.pick(line, column < 0);
      if (column >= 0) this.context.go({ rank: this.state.ranks[column] });
    });
    canvas.addEventListener("pointermove", (e) => this.hover(...place(e, canvas)));
    canvas.addEventListener("pointerleave", () => this.surface.unhint());
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  private pick(line: number, toggle: boolean): void {
    const node = this.state?.nodes[line];
    if (!node) return;
    this.line = line;
    if (toggle && !node.leaf && !this.folded.delete(node.path)) this.folded.add(node.path);
    this.surface.voice.textContent = node.leaf ? node.path : `${node.path}, ${this.folded.has(node.path) ? "folded" : "unfolded"}`;
    const y = TOP + line * HIGH;
    if (y < this.scroll.scrollTop) this.scroll.scrollTop = y - TOP;
    else if (y + HIGH > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = y + HIGH - this.scroll.clientHeight;
    this.context.redraw();
  }

  private hover(x: number, y: number): void {
    const s = this.state;
    const { line, column } = s ? gradientHit(this.grid, s, x, y) : { line: -1, column: -1 };
    const node = s?.nodes[line];
    if (!s || !node) return this.surface.unhint();
    const value = column >= 0 ? s.values[line * s.ranks.length + column] : Number.NaN;
    const { label, unit } = GRADIENT_METRICS[this.metric];
    const p = node.leaf ? this.parameters.find((q) => q.id === node.ids[0]) : undefined;
    const about = p
      ? [p.module, p.shape, p.bucket >= 0 ? `bucket ${p.bucket}` : ""].filter(Boolean).join(", ")
      : `${integer(node.ids.length)} parameters`;
    const said = Number.isNaN(value) ? [] : [`rank ${s.ranks[column]}: ${label} ${number(value)} ${unit}`];
    this.surface.hint(x, y, node.path, about, ...said);
  }

  private key(e: KeyboardEvent): void {
    const { model } = this.context;
    const last = (this.state?.nodes.length ?? 0) - 1;
    const to = (step: number | null) => step !== null && this.context.go({ step, collective: null });
    const acts: Record<string, () => void> = {
      ArrowDown: () => this.pick(Math.min(this.line + 1, last), false),
      ArrowUp: () => this.pick(Math.max(this.line - 1, 0), false),
      Enter: () => this.pick(this.line, true),
      ArrowLeft: () => to(stepWith(model, this.step - 1, COLUMNS[this.metric])),
      ArrowRight: () => to(stepAfter(model, this.step, COLUMNS[this.metric])),
    };
    if (!acts[e.key]) return;
    acts[e.key]();
    e.preventDefault();
    e.stopPropagation();
  }

  private csv(): string {
    const { unit } = GRADIENT_METRICS[this.metric];
    const lines = [`${this.by},rank,step,${this.metric}${unit ? `_${unit === "%" ? "percent" : unit}` : ""}`];
    const s = this.state;
    s?.nodes.forEach((node, n) =>
      s.ranks.forEach((rank, r) => {
        lines.push([node.path, rank, this.step, s.values[n * s.ranks.length + r]].map(csvField).join());
      }),
    );
    return lines.join("\n");
  }
}

function when({ from, to }: Sampled, wanted: number): string {
  if (from < to) return `steps ${integer(from)} to ${integer(to)}, each rank's last sample`;
  return `step ${integer(to)}${to < wanted ? ", the last sample" : ""}`;
}

/** Lines of parameters that no table names. */
function nameless(rows: readonly GradientRow[]): Node[] {
  const ids = [...new Set(rows.map((r) => r.id))].sort((a, b) => a - b);
  return ids.map((id) => ({ path: String(id), label: `parameter ${id}`, depth: 0, leaf: true, ids: [id], sizes: [Number.NaN] }));
}

/** Which gradient was ready first and last, within one rank: ranks may have been sampled at different steps. */
function spread(rows: GradientRow[], names: Map<number, string>): string {
  const timed = rows.filter((r) => !Number.isNaN(r.ready) && r.rank === rows[0].rank).sort((a, b) => a.ready - b.ready);
  if (timed.length < 2) return "";
  const [first, last] = [timed[0], timed[timed.length - 1]];
  const apart = duration(last.ready - first.ready);
  return `ready on rank ${first.rank}: ${names.get(first.id) ?? first.id} first, ${names.get(last.id) ?? last.id} last, ${apart} apart`;
}
