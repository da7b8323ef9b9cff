// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Timeline of the selected step: a lane a rank, compute thick, communication thin under it.
import type { Collective } from "../collectives";
import { button, h, say } from "../dom";
import { clocks } from "../facts";
import { duration, fixed, integer } from "../format";
import { clip, total } from "../intervals";
import { laneRows, spanAt } from "../lanerows";
import { LEFT } from "../margins";
import { type Context, copyMenu, frame, type Panel } from "../panel";
import type { Lane, StepView } from "../stepview";
import { place, Surface } from "../surface";
import { costliest, drawTimeline, type Layout, layout, minimapTime, nearest } from "../timelinedraw";
import { collectiveWords, legend, stepWords, timelineCsv } from "../timelinewords";

const MOST_LANES = 32;
const KEYS =
  "W and S zoom, A and D pan, 0 shows all, up and down choose a rank, E unfolds it, left and right change the step, M measures what is shown, as does shift and drag";

export class TimelinePanel implements Panel {
  readonly root: HTMLElement;
  private readonly frame = frame("timeline", "Step");
  private readonly surface: Surface;
  private readonly search: HTMLInputElement;
  private readonly number: HTMLInputElement;
  private readonly unfolded = new Set<number>();
  private zoom: [number, number] | null = null;
  private hovered: Collective | null = null;
  private measure: [number, number] | null = null;
  private view: StepView | null = null;
  private layout: Layout | null = null;
  private drag: { x: number; from: number; to: number; measuring: boolean; moved: boolean } | null = null;
  private readonly fingers = new Map<number, number>();
  private mapping = false;
  private all = false;
  private found = "";
  private readonly more: HTMLButtonElement;

  constructor(private readonly context: Context) {
    this.surface = new Surface("timeline of a step", KEYS, () => context.redraw(), context.signal);
    this.search = h("input.dts-search", {
      type: "search",
      placeholder: "find a kernel",
      "aria-label": "find a kernel or host activity",
      size: 12,
      oninput: () => context.redraw(this),
      onkeydown: (e) => {
        if ((e as KeyboardEvent).key === "Enter") this.find();
      },
    });
    this.number = h("input.dts-search.dts-number", {
      type: "number",
      min: 0,
      "aria-label": "step to show",
      onchange: () => this.jump(),
    });
    this.more = button("", () => {
      this.all = !this.all;
      context.redraw();
    });
    this.frame.controls.append(
      legend(),
      this.more,
      this.search,
      button("‹", () => this.turn(-1), "step before"),
      this.number,
      button("›", () => this.turn(1), "next step"),
      copyMenu(context, "timeline", this.surface, () => timelineCsv(this.view)),
    );
    this.frame.body.append(this.surface.root);
    this.root = this.frame.root;
    this.listen();
  }

  update(): void {
    const { model, place: here, colors } = this.context;
    const step = here.step;
    const view = step === null ? null : model.view(step);
    if (view?.step !== this.view?.step) this.zoom = null;
    this.view = view;
    this.root.hidden = step === null;
    if (step === null) return;
    say(this.frame.title, `Step ${integer(step)}`);
    if (document.activeElement !== this.number) this.number.value = String(step);
    const shown = view ? this.lanes(view).length : 0;
    say(this.frame.sub, stepWords(model, step, view, { shown, following: this.context.following, missing: this.context.missing() }));
    this.surface.root.hidden = !view;
    if (!view) return;
    if (here.find !== this.found) this.seek(here.find);
    const lanes = this.lanes(view);
    this.more.hidden = view.lanes.length <= MOST_LANES;
    say(this.more, this.all ? "fewer ranks" : "all ranks");
    this.layout = layout(this.surface.root.clientWidth, view, lanes, this.unfolded);
    const [from, to] = this.window();
    const state = {
      view,
      from,
      to,
      rank: here.rank,
      chosen: this.hovered ?? this.chosen(view),
      measure: this.measure,
      search: this.search.value.trim(),
      uncertainty: clocks(model).uncertaintyMs,
    };
    this.surface.paint(this.layout.total, (pen) => drawTimeline(pen, this.layout!, state, colors));
    this.surface.canvas.dataset.window = [from - view.start, to - view.start].map((t) => t.toFixed(3)).join();
  }

  /** All ranks, or the selected and those that came last most where they are too many. */
  private lanes(view: StepView): Lane[] {
    if (view.lanes.length <= MOST_LANES || this.all) return view.lanes;
    const blame = new Map<number, number>();
    for (const c of view.collectives) if (c.last !== null) blame.set(c.last, (blame.get(c.last) ?? 0) + c.lateBy);
    if (this.context.place.rank !== null) blame.set(this.context.place.rank, Number.POSITIVE_INFINITY);
    const sorted = [...view.lanes].sort((a, b) => (blame.get(b.rank) ?? 0) - (blame.get(a.rank) ?? 0) || a.rank - b.rank);
    return sorted.slice(0, MOST_LANES).sort((a, b) => a.rank - b.rank);
  }

  private chosen(view: StepView): Collective | null {
    const key = this.context.place.collective;
    return view.collectives.find((c) => c.key === key) ?? costliest(view);
  }

  private window(): [number, number] {
    const { start, end } = this.view!;
    return this.zoom ?? [start - (end - start) * 0.004, end + (end - start) * 0.004];
  }

  /** Goes to the step that was typed. */
  private jump(): void {
    const step = this.number.valueAsNumber;
    const last = this.context.model.matrix.lastStep;
    if (Number.isInteger(step) && step >= 0 && step <= last) return this.context.go({ step, collective: null });
    this.context.note(`there is no step ${this.number.value}; the last is ${integer(last)}`);
  }

  private turn(by: number): void {
    const { model, place: here } = this.context;
    const step = (here.step ?? 0) + by;
    if (step >= 0 && step <= model.matrix.lastStep) this.context.go({ step, collective: null });
  }

  private time(x: number): number {
    const [from, to] = this.window();
    return from + ((x - LEFT) / this.layout!.plot) * (to - from);
  }

  private listen(): void {
    const { canvas } = this.surface;
    canvas.addEventListener("pointerdown", (e) => this.press(e));
    canvas.addEventListener("pointermove", (e) => this.move(e));
    for (const name of ["pointerup", "pointercancel"] as const) canvas.addEventListener(name, (e) => this.release(e));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  private press(e: PointerEvent): void {
    if (!this.view || !this.layout) return;
    this.surface.canvas.setPointerCapture(e.pointerId);
    const [x, y] = place(e, this.surface.canvas);
    this.mapping = minimapTime(this.layout, this.view, x, y) !== null;
    if (this.mapping) return this.centre(x);
    this.fingers.set(e.pointerId, x);
    const [from, to] = this.window();
    this.drag = { x, from, to, measuring: e.shiftKey, moved: false };
  }

  private move(e: PointerEvent): void {
    if (!this.view || !this.layout) return;
    const [x, y] = place(e, this.surface.canvas);
    if (this.mapping) return this.centre(x);
    if (this.fingers.size === 2 && this.fingers.has(e.pointerId)) return this.pinch(e.pointerId, x);
    if (!this.drag) return this.hover(x, y);
    this.drag.moved ||= Math.abs(x - this.drag.x) > 3;
    if (!this.drag.moved) return;
    if (this.drag.measuring) this.measure = [this.time(this.drag.x), this.time(x)];
    else {
      const by = ((this.drag.x - x) / this.layout.plot) * (this.drag.to - this.drag.from);
      this.show(this.drag.from + by, this.drag.to + by);
    }
    this.context.redraw(this);
  }

  private release(e: PointerEvent): void {
    this.mapping = false;
    this.fingers.delete(e.pointerId);
    const drag = this.drag;
    this.drag = null;
    if (!drag || e.type === "pointercancel") return;
    if (!drag.moved) this.click(...place(e, this.surface.canvas));
    else if (drag.measuring) this.measured();
  }

  private leave(): void {
    this.hovered = null;
    this.surface.unhint();
    this.context.redraw(this);
  }

  private click(x: number, y: number): void {
    this.measure = null;
    const box = this.layout!.boxes.find((b) => y >= b.y && y < b.y + b.height);
    if (!box) return this.context.redraw(this);
    if (x < LEFT) return this.unfold(box.lane.rank);
    const found = nearest(this.view!, box.lane.rank, this.time(x), 4 * this.pixel);
    this.context.go({ rank: box.lane.rank, ...(found ? { collective: found.key } : {}) });
  }

  /** Brings the time under a point of the minimap into the middle. */
  private centre(x: number): void {
    const at = minimapTime(this.layout!, this.view!, x, this.layout!.total);
    const [from, to] = this.window();
    const half = this.zoom ? (to - from) / 2 : (to - from) / 8;
    if (at !== null) this.show(at - half, at + half);
    this.context.redraw(this);
  }

  private hover(x: number, y: number): void {
    const box = this.layout!.boxes.find((b) => y >= b.y && y < b.y + b.height);
    const at = this.time(x);
    const inComm = box && x >= LEFT && y >= box.y + box.thick && y < box.y + box.thick + box.thin + 3;
    this.hovered = inComm ? nearest(this.view!, box.lane.rank, at, 3 * this.pixel) : null;
    const lines = box && x >= LEFT && x <= LEFT + this.layout!.plot ? this.describe(box, at, y) : [];
    if (lines.length) this.surface.hint(x, y, ...lines);
    else this.surface.unhint();
    this.context.redraw(this);
  }

  private describe(box: Layout["boxes"][number], at: number, y: number): string[] {
    if (this.hovered) return collectiveWords(this.hovered, box.lane.rank);
    const row = box.rows[Math.floor((y - box.y - box.thick - box.thin - 5) / 14)];
    const rows = row ? [row] : laneRows(box.lane, this.view!).filter((r) => !r.name.startsWith("comm"));
    const span = rows.map((r) => spanAt(r, at, this.pixel)).find((found) => found !== null);
    if (!span) return [];
    return [
      span.name,
      `${duration(span.end - span.start)} · ${span.kind.replaceAll("_", " ")} · ${span.row}`,
      ...(span.line ? [span.line] : []),
    ];
  }

  private get pixel(): number {
    const [from, to] = this.window();
    return (to - from) / this.layout!.plot;
  }

  private measured(): void {
    const [a, b] = [...this.measure!].sort((p, q) => p - q);
    const parts = this.layout!.boxes.slice(0, 8).map(
      ({ lane }) =>
        `rank ${lane.rank}: compute ${fixed(total(clip(lane.compute, a, b)), 2)}, exposed ${fixed(total(clip(lane.exposed, a, b)), 2)} ms`,
    );
    this.surface.hint(LEFT + (b - this.window()[0]) / this.pixel, 4, duration(b - a), ...parts);
    this.surface.voice.textContent = `measured ${duration(b - a)}`;
  }

  private wheel(e: WheelEvent): void {
    // Without focus the wheel belongs to the notebook's page.
    if (!this.view || !(e.ctrlKey || document.activeElement === this.surface.canvas)) return;
    e.preventDefault();
    const [x] = place(e, this.surface.canvas);
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(((e.deltaX || e.deltaY) / this.layout!.plot) * 1);
    else this.scale(Math.exp(e.deltaY / (e.ctrlKey ? 120 : 400)), this.time(x));
  }

  private pinch(id: number, x: number): void {
    const [other] = [...this.fingers].filter(([finger]) => finger !== id).map(([, at]) => at);
    const before = Math.abs(this.fingers.get(id)! - other);
    this.fingers.set(id, x);
    const after = Math.abs(x - other);
    if (before > 5 && after > 5) this.scale(before / after, this.time((x + other) / 2));
    this.drag = null;
  }

  private key(e: KeyboardEvent): void {
    if (!this.view || e.ctrlKey || e.metaKey || e.altKey) return;
    const lanes = this.layout?.boxes.map((b) => b.lane.rank) ?? [];
    const at = lanes.indexOf(this.context.place.rank ?? -1);
    const acts: Record<string, () => void> = {
      w: () => this.scale(0.7),
      s: () => this.scale(1.4),
      a: () => this.pan(-0.15),
      d: () => this.pan(0.15),
      "+": () => this.scale(0.7),
      "-": () => this.scale(1.4),
      "0": () => {
        this.zoom = null;
        this.context.redraw(this);
      },
      ArrowLeft: () => this.turn(-1),
      ArrowRight: () => this.turn(1),
      ArrowUp: () => this.context.go({ rank: lanes[Math.max(0, at - 1)] }),
      ArrowDown: () => this.context.go({ rank: lanes[Math.min(lanes.length - 1, at + 1)] }),
      e: () => this.unfold(this.context.place.rank ?? lanes[0]),
      m: () => {
        this.measure = [...this.window()];
        this.measured();
        this.context.redraw(this);
      },
      Escape: () => {
        this.measure = null;
        this.context.redraw(this);
      },
    };
    const act = acts[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!act) return;
    act();
    e.preventDefault();
    e.stopPropagation();
  }

  private unfold(rank: number): void {
    if (!this.unfolded.delete(rank)) this.unfolded.add(rank);
    this.context.redraw(this);
  }

  private scale(factor: number, at?: number): void {
    const [from, to] = this.window();
    const middle = at ?? (from + to) / 2;
    this.show(middle - (middle - from) * factor, middle + (to - middle) * factor);
    this.context.redraw(this);
  }

  private pan(share: number): void {
    const [from, to] = this.window();
    this.show(from + share * (to - from), to + share * (to - from));
    this.context.redraw(this);
  }

  /** Shows [from, to], kept within the step; the whole step is no zoom. */
  private show(from: number, to: number): void {
    const { start, end } = this.view!;
    const wide = Math.max(Math.min(to - from, end - start), 1e-5);
    if (wide >= (end - start) * 0.999) {
      this.zoom = null;
      return;
    }
    const left = Math.max(start, Math.min(from, end - wide));
    this.zoom = [left, left + wide];
  }

  /** Shows what another panel leads to. */
  private seek(name: string): void {
    this.found = name;
    if (!name) return;
    this.search.value = name;
    this.zoom = null;
    this.find();
  }

  /** Goes to the next span whose name holds the search, first of all on the chosen rank. */
  private find(): void {
    const sought = this.search.value.trim().toLowerCase();
    if (!sought || !this.view) return;
    const after = this.zoom ? (this.zoom[0] + this.zoom[1]) / 2 : this.view.start - 1;
    const hits = this.view.lanes.flatMap((l) =>
      [...l.spans(), ...l.host].filter((s) => s.name.toLowerCase().includes(sought)).map((s) => ({ s, rank: l.rank })),
    );
    const away = (rank: number) => Number(rank !== this.context.place.rank);
    const from = this.zoom ? 0 : 1;
    hits.sort((a, b) => from * (away(a.rank) - away(b.rank)) || a.s.start - b.s.start);
    const next = hits.find(({ s }) => (s.start + s.end) / 2 > after + 1e-6) ?? hits[0];
    if (!next) return this.context.note(`nothing in this step is called ${sought}`);
    const wide = Math.max((next.s.end - next.s.start) * 20, 0.05);
    this.unfolded.add(next.rank);
    this.show((next.s.start + next.s.end - wide) / 2, (next.s.start + next.s.end + wide) / 2);
    this.context.drift({ rank: next.rank });
  }
}
