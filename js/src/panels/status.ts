// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Status line: what runs, how far, how fast, what watching it costs.
import { button, h, say } from "../dom";
import { deviceWords, dropped, observerCost } from "../facts";
import { duration, fixed, integer, number, plural, ranks } from "../format";
import { permalink } from "../history";
import type { Model } from "../model";
import type { Context, Panel } from "../panel";

const WORDS: Record<string, string> = {
  waiting: "waiting for the first step",
  running: "running",
  finished: "finished",
  done: "finished",
  silent: "silent",
  failed: "failed",
  interrupted: "interrupted",
  stopped: "stopped",
  hung: "hangs",
  detached: "detached",
};
const STALE_MS = 5000;

export class StatusPanel implements Panel {
  readonly root: HTMLElement;
  private readonly dot = h("i.dts-dot", { "aria-hidden": "true" });
  private readonly title = h("strong");
  private readonly state = h("span.dts-state", { role: "status" });
  private readonly facts = h("span.dts-sub");
  private readonly cost = h("span.dts-sub.dts-right");
  private readonly back: HTMLButtonElement;
  private readonly forward: HTMLButtonElement;
  private readonly follow: HTMLButtonElement;

  constructor(
    private readonly context: Context & { back(): void; forward(): void; canBack(): boolean; canForward(): boolean; gone(): boolean },
  ) {
    this.back = button("←", () => context.back(), "back to where you looked before");
    this.forward = button("→", () => context.forward(), "forward");
    this.follow = button("follow newest", () => context.follow(), "let the selection follow the newest step");
    const link = button("link", () => this.link(), "copy the Python text that shows this place again");
    const controls = h("span.dts-controls", {}, this.follow, this.back, this.forward, link);
    this.root = h("div.dts-status", {}, this.dot, this.title, this.state, this.facts, this.cost, controls);
  }

  update(): void {
    const { model } = this.context;
    const { status } = model;
    const state = this.stateWord();
    this.dot.dataset.state = state.level;
    say(this.title, status.title || "run");
    say(this.state, state.text);
    say(this.facts, facts(model).join(" · "));
    say(this.cost, costs(model).join(" · "));
    this.back.disabled = !this.context.canBack();
    this.forward.disabled = !this.context.canForward();
    this.follow.hidden = this.context.following || !status.live;
  }

  private stateWord(): { text: string; level: string } {
    const { status, heard } = this.context.model;
    if (this.context.gone()) return { text: "the kernel is gone or does not answer; this is what it sent", level: "warning" };
    const bad = Object.entries(status.ranks).filter(([, s]) => s !== "running" && s !== "exited");
    if (status.state === "running" && bad.length) {
      const [, word] = bad[0];
      return { text: `running, rank ${ranks(bad.filter(([, s]) => s === word).map(([r]) => Number(r)))} ${word}`, level: "critical" };
    }
    const silent = performance.now() - heard;
    if (status.live && status.state === "running" && silent > STALE_MS) {
      return { text: `nothing heard for ${duration(Math.round(silent / 1000) * 1000)}`, level: "warning" };
    }
    const text = WORDS[status.state] ?? status.state;
    const level =
      { failed: "critical", hung: "critical", interrupted: "warning", waiting: "quiet", running: "good" }[status.state] ?? "quiet";
    return { text: status.message ? `${text}: ${status.message}` : text, level };
  }

  private link(): void {
    const text = permalink("timeline", this.context.place);
    navigator.clipboard?.writeText(text).then(
      () => this.context.note(`copied ${text}`),
      () => this.context.note(text),
    ) ?? this.context.note(text);
  }
}

function facts(model: Model): string[] {
  const { status, matrix } = model;
  const out: string[] = [];
  if (model.worldSize) out.push(plural(model.worldSize, "rank"));
  const device = deviceWords(model);
  if (device) out.push(device);
  if (status.backend) out.push(status.backend);
  if (matrix.lastStep >= 0) out.push(`step ${integer(model.newestWhole ?? matrix.lastStep)}`);
  const rate = model.pace.stepsPerSecond;
  if (rate > 0) out.push(`${number(rate)} steps/s`);
  return out;
}

export function costs(model: Model): string[] {
  const out: string[] = [];
  const cost = observerCost(model);
  const lost = dropped(model);
  if (!Number.isNaN(cost)) out.push(`observer ${fixed(cost * 100, 1)} %`);
  if (model.matrix.columns) out.push(lost ? `${plural(lost, "row")} lost` : "no row lost");
  if (model.status.skipped) out.push(`${plural(model.status.skipped, "row")} not shown`);
  const damaged = model.damaged + model.status.damaged;
  if (damaged) out.push(plural(damaged, "damaged block"));
  return out;
}
