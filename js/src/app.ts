// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// One view of a run: the panels, where the user looks, and when to draw.
import { h, say } from "./dom";
import { Fetching } from "./fetching";
import { type Place, Trail } from "./history";
import type { Model } from "./model";
import { type Colors, colorsOf, paint, type Theme, themeOf } from "./palette";
import type { Context, Panel } from "./panel";
import { DevicesPanel } from "./panels/devices";
import { DrillPanel } from "./panels/drill";
import { FindingsPanel } from "./panels/findings";
import { GradientsPanel } from "./panels/gradients";
import { LogPanel } from "./panels/log";
import { MapPanel } from "./panels/map";
import { StatusPanel } from "./panels/status";
import { TimelinePanel } from "./panels/timeline";

export interface Options {
  readonly place?: Partial<Place>;
  /** The panel that was asked for; the others are left out, "" for all. */
  readonly only?: string;
  /** Whether the kernel's side is gone. */
  readonly gone?: () => boolean;
  /** How steps that the page lacks are asked for; without, they are not. */
  readonly fetching?: Fetching;
}

const TABS = ["gradients", "log", "devices"] as const;
const FOLLOW_MS = 1000;

export class App {
  readonly root = h("div.dts", { role: "region", "aria-label": "distributed training panels" });
  private readonly trail = new Trail();
  private readonly panels: Panel[] = [];
  private readonly tabs = new Map<string, { panel: Panel; tab: HTMLButtonElement }>();
  private readonly empty = h("p.dts-empty");
  private readonly toast = h("div.dts-toast", { role: "status", hidden: true });
  private readonly ending = new AbortController();
  private colors: Colors = colorsOf("light");
  private theme: Theme = "light";
  private following: boolean;
  private followed = 0;
  private frame = 0;
  private stale = new Set<Panel>();
  private quiet = 0;
  private noted = 0;
  private readonly fetching: Fetching;

  constructor(
    private readonly model: Model,
    private readonly options: Options = {},
  ) {
    this.following = options.place?.step === undefined;
    this.fetching = options.fetching ?? new Fetching(null);
    if (options.place) this.trail.drift(options.place);
    const context = this.context();
    const status = new StatusPanel(context);
    const map = new MapPanel(context, options.only);
    const timeline = new TimelinePanel(context);
    const drill = new DrillPanel(context);
    this.panels.push(status, new FindingsPanel(context), map, timeline, drill);
    this.root.append(
      ...this.panels.slice(0, 2).map((p) => p.root),
      this.empty,
      map.root,
      timeline.root,
      drill.root,
      this.tabbed(context),
      this.toast,
    );
    this.limit(options.only ?? "");
    this.keys();
    this.watchTheme();
  }

  /** Draws soon, all or one panel; once a frame however often it is asked, and not while nobody can see it. */
  redraw(one?: Panel): void {
    if (one) this.stale.add(one);
    else this.stale = new Set(this.panels);
    if (document.hidden) return;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (this.ending.signal.aborted) return;
      const stale = this.stale;
      this.stale = new Set();
      if (stale.size === this.panels.length) this.update();
      else for (const panel of stale) panel.update();
    });
  }

  end(): void {
    this.ending.abort();
    cancelAnimationFrame(this.frame);
    clearInterval(this.quiet);
    this.root.remove();
  }

  private update(): void {
    this.lead();
    const { tab } = this.trail.here;
    for (const [name, { panel, tab: button }] of this.tabs) {
      panel.root.hidden = name !== tab;
      button.setAttribute("aria-selected", String(name === tab));
      button.tabIndex = name === tab ? 0 : -1;
    }
    for (const panel of this.panels) panel.update();
    this.empty.hidden = this.model.matrix.columns > 0;
    if (!this.empty.hidden) say(this.empty, this.emptyWords());
  }

  /** Moves a selection that follows to the newest step that can be shown whole, at most once a second so that it can be read. */
  private lead(): void {
    const newest = this.model.newestTold;
    const live = this.model.status.live && this.model.status.state === "running";
    const now = performance.now();
    if (!this.following || newest === null || (live && now - this.followed < FOLLOW_MS && this.trail.here.step !== null)) return;
    this.followed = now;
    this.trail.drift({ step: newest, collective: null });
  }

  private emptyWords(): string {
    const { status } = this.model;
    if (status.state === "waiting" || status.state === "running" || status.state === "") {
      return status.live ? "No step has been finished yet. The map begins with the first one." : "Loading the run.";
    }
    const known = this.model.findings.length ? " What is known stands above." : "";
    return `No step was recorded in this run.${known}`;
  }

  private tabbed(context: Context): HTMLElement {
    const made: Record<(typeof TABS)[number], Panel> = {
      gradients: new GradientsPanel(context),
      log: new LogPanel(context),
      devices: new DevicesPanel(context),
    };
    const list = h("div.dts-tabs", { role: "tablist", "aria-label": "more panels" });
    const bodies = TABS.map((name) => {
      const panel = made[name];
      const tab = h("button", { type: "button", role: "tab", onclick: () => context.go({ tab: name }) }, name);
      list.append(tab);
      panel.root.setAttribute("role", "tabpanel");
      this.tabs.set(name, { panel, tab });
      this.panels.push(panel);
      return panel.root;
    });
    list.addEventListener("keydown", (e) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!by) return;
      const at = TABS.indexOf(this.trail.here.tab as (typeof TABS)[number]);
      const next = TABS[(at + by + TABS.length) % TABS.length];
      context.go({ tab: next });
      this.tabs.get(next)!.tab.focus();
      e.preventDefault();
    });
    return h("div.dts-more", {}, list, ...bodies);
  }

  /** Leaves only what belongs to one panel. */
  private limit(only: string): void {
    const parts: Record<string, string[]> = {
      overlap: ["map"],
      waits: ["map"],
      bandwidth: ["map"],
      timeline: ["timeline", "drill"],
      gradients: ["gradients"],
      log: ["log"],
      devices: ["devices"],
      findings: ["findings", "map"],
    };
    if (only in { gradients: 1, log: 1, devices: 1 }) this.trail.drift({ tab: only });
    if (parts[only]) this.root.dataset.only = only;
  }

  private context(): Context & { back(): void; forward(): void; canBack(): boolean; canForward(): boolean; gone(): boolean } {
    const app = this;
    return {
      model: this.model,
      signal: this.ending.signal,
      get place() {
        return app.trail.here;
      },
      get colors() {
        return app.colors;
      },
      get theme() {
        return app.theme;
      },
      get following() {
        return app.following;
      },
      go: (change) => this.go(change),
      drift: (change) => {
        this.following = false;
        this.trail.drift(change);
        this.redraw();
      },
      follow: () => {
        this.following = true;
        this.followed = 0;
        this.redraw();
      },
      redraw: (one) => this.redraw(one),
      note: (text) => this.note(text),
      missing: () => this.missing(),
      back: () => this.travel(this.trail.back()),
      forward: () => this.travel(this.trail.forward()),
      canBack: () => this.trail.canBack,
      canForward: () => this.trail.canForward,
      gone: () => this.options.gone?.() ?? false,
    };
  }

  private go(change: Partial<Place>): void {
    if (change.step !== undefined || change.collective) this.following = false;
    if (typeof change.step === "number") this.fetching.retry(change.step);
    if (this.trail.go(change)) this.redraw();
  }

  private travel(moved: boolean): void {
    this.following = false;
    if (moved) this.redraw();
  }

  private note(text: string): void {
    say(this.toast, text);
    this.toast.hidden = false;
    clearTimeout(this.noted);
    this.noted = window.setTimeout(() => {
      this.toast.hidden = true;
    }, 4000);
  }

  private keys(): void {
    // JupyterLab takes keys as commands to the notebook before any panel sees them: D twice would delete the cell.
    window.addEventListener(
      "keydown",
      (e) => {
        // On the element itself: a shortcut may be for whatever has the focus.
        const target = e.target as Element;
        if (this.root.contains(target)) target.toggleAttribute("data-lm-suppress-shortcuts", !(e.ctrlKey || e.metaKey));
      },
      { capture: true, signal: this.ending.signal },
    );
    this.root.addEventListener("keydown", (e) => {
      if (e.altKey && e.key === "ArrowLeft") this.travel(this.trail.back());
      else if (e.altKey && e.key === "ArrowRight") this.travel(this.trail.forward());
      else if ((e.target as HTMLElement).matches("input,select")) return e.stopPropagation();
      else return;
      e.preventDefault();
      e.stopPropagation();
    });
  }

  private watchTheme(): void {
    const apply = () => {
      this.theme = themeOf(this.root);
      this.colors = paint(this.root, this.theme);
      this.redraw();
    };
    const observer = new MutationObserver(apply);
    observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
      matchMedia(query).addEventListener("change", apply, { signal: this.ending.signal });
    }
    this.ending.signal.addEventListener("abort", () => observer.disconnect());
    // Words such as "nothing heard for 12 s" change without a message.
    this.quiet = window.setInterval(() => {
      if (this.model.status.live || this.fetching.pending) this.redraw();
    }, 1000);
    document.addEventListener("visibilitychange", () => this.redraw(), { signal: this.ending.signal });
    requestAnimationFrame(apply);
  }

  /** Asks for what the page lacks of the chosen step; a selection that follows is at a step that is still coming in. */
  private missing(): string {
    const { step } = this.trail.here;
    if (step === null || (this.following && this.model.status.live) || !this.model.lacks(step)) return "";
    this.fetching.want(step);
    return this.fetching.words(step, this.options.gone?.() ?? false);
  }
}
