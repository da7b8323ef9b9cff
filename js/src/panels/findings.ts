// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The sentence first: the most costly finding in words, the others behind it; each leads to its place.
import { button, fill, h } from "../dom";
import { detail, type Finding } from "../finding";
import { plural } from "../format";
import type { Context, Panel } from "../panel";

export class FindingsPanel implements Panel {
  readonly root = h("section.dts-findings", { "aria-label": "findings", "data-panel": "findings" });
  private shown = "";
  private open = false;

  constructor(private readonly context: Context) {}

  update(): void {
    const { findings, matrix } = this.context.model;
    const key = JSON.stringify([findings.map((f) => [f.sentence, f.severity, detail(f)]), this.open, matrix.columns > 0]);
    if (key === this.shown) return;
    this.shown = key;
    this.root.hidden = !findings.length;
    const [first, ...rest] = findings;
    if (!first) return fill(this.root);
    const more =
      rest.length > 0 &&
      button(this.open ? "fewer" : `${plural(rest.length, "more finding")}`, () => {
        this.open = !this.open;
        this.context.redraw();
      });
    if (more) more.setAttribute("aria-expanded", String(this.open));
    fill(this.root, this.line(first), ...(this.open ? rest.map((f) => this.line(f)) : []), more);
  }

  private line(f: Finding): HTMLElement {
    const show = button("show ›", () => this.show(f), `show where: ${f.sentence}`);
    const words = h("div", {}, h("strong", {}, f.sentence), h("div.dts-sub", {}, detail(f)));
    const sign = { critical: "✕", warning: "!", info: "i" }[f.severity] ?? "i";
    return h(
      "div.dts-finding",
      { "data-severity": f.severity },
      h("b.dts-sign", { "aria-label": f.severity }, sign),
      words,
      this.context.model.matrix.columns && (f.steps.length || f.ranks.length) ? show : null,
    );
  }

  private show(f: Finding): void {
    const { model } = this.context;
    const newest = model.newestWhole ?? model.matrix.lastStep;
    const step = model.clearest(f.steps.filter((s) => s <= newest));
    this.context.go({
      rank: f.ranks[0] ?? null,
      ...(step === null ? {} : { step, collective: null }),
      ...(f.kind === "nonfinite" ? { tab: "gradients" } : {}),
    });
    if (step === null && f.steps.length) this.context.note("no rank has finished the steps of this finding");
  }
}
