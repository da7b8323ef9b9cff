// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What the late rank did instead: where its time went, the kernels and host calls that stand out, their source lines.
import type { Collective } from "../collectives";
import { button, fill, h, say } from "../dom";
import { duration, fixed } from "../format";
import { type Instead, instead, STEP_BEFORE } from "../instead";
import { type Context, type Frame, frame } from "../panel";
import { reveal } from "../source";
import { recorders, type StepView } from "../stepview";

export class InsteadCard {
  private readonly frame: Frame = frame("instead", "");
  readonly root = this.frame.root;

  constructor(private readonly context: Context) {}

  show(view: StepView, chosen: Collective | null): void {
    const found = chosen && instead(view, chosen);
    if (!found) {
      const [title, text] = nobody(view);
      say(this.frame.title, title);
      return fill(this.frame.body, h("p.dts-sub", {}, text));
    }
    say(this.frame.title, `What rank ${found.rank} did instead`);
    const line = chosen.members.find((m) => m.rank === found.rank)?.line ?? chosen.members.find((m) => m.line)?.line;
    const called = line ? h("div.dts-name.dts-sub", {}, `${chosen.operation} is called at `, this.source(line)) : null;
    fill(this.frame.body, this.bars(found), this.names(found, view), called);
  }

  private bars(found: Instead): HTMLElement {
    const most = Math.max(0.001, found.lateBy, ...found.rows.map((r) => r.more));
    const rows = found.rows
      .filter((r) => r.own > 0.0005 || r.others > 0.0005)
      .map((r) => {
        const share = Math.max(0, r.more / most) * 100;
        const costs = r.more > 0.25 * found.lateBy;
        const bar = h("div.dts-bar", {}, h("i", { style: `width:${share.toFixed(1)}%` }));
        return h(
          "tr",
          { class: costs ? "dts-strong" : "" },
          h("td.dts-text", {}, r.activity),
          h("td.dts-barcell", {}, bar),
          h("td", {}, signed(r.more)),
          h("td.dts-quiet", {}, fixed(r.own, 1)),
          h("td.dts-quiet", {}, fixed(r.others, 1)),
        );
      });
    const head = h(
      "thead",
      {},
      h("tr", {}, h("th.dts-text", { colspan: 2 }, "until it joined"), h("th", {}, "more ms"), h("th", {}, "own"), h("th", {}, "others")),
    );
    return h("table.dts-table.dts-instead", {}, head, h("tbody", {}, ...rows));
  }

  private names(found: Instead, view: StepView): HTMLElement {
    const others = view.lanes.filter((l) => l.rank !== found.rank).map((l) => l.rank);
    const lines = found.names.map((n) => {
      const only = n.only && others.length ? ` · only on rank ${found.rank}` : "";
      return h(
        "div.dts-name",
        {},
        button(n.name, () => this.context.go({ rank: found.rank, find: n.name }), `show ${n.name} in the timeline`, "dts-code"),
        h("div.dts-sub", {}, `${n.count > 1 ? `${n.count} × ${duration(n.more / n.count)}` : duration(n.more)} · ${n.row}${only}`),
        n.line ? this.source(n.line) : null,
      );
    });
    const most = [...found.rows].sort((a, b) => b.more - a.more)[0];
    if (most.activity === STEP_BEFORE) return h("div", {}, this.before(view, most.more), ...lines);
    const onDevice = view.lanes.some((l) => l.rank === found.rank && l.onDevice && !l.exact);
    const bare =
      most.activity === "nothing"
        ? onDevice
          ? "Its host used no processor: a sleep, a lock, file access, or a wait for its GPU. %dtscope capture profile shows which."
          : "Its host used no processor and launched no work: a sleep, a lock, or file access. %dtscope capture stacks shows where."
        : "Nothing in its host and kernel tables stands out by name. %dtscope capture profile shows its kernels.";
    return h("div", {}, ...(lines.length ? lines : [h("p.dts-sub", {}, bare)]));
  }

  /** The rank began the step late: the cause lies in the step before. */
  private before(view: StepView, more: number): HTMLElement {
    const step = view.step - 1;
    if (step < 0) return h("p.dts-sub", {}, `It began its first step ${duration(more)} after the others.`);
    const go = button(`step ${step} ›`, () => this.context.go({ step, collective: null }), `show step ${step}`);
    return h("p.dts-sub", {}, `It began this step ${duration(more)} after the others, by what it did at the end of `, go);
  }

  /** A place in the user's source; a click leads there, or copies it. */
  private source(line: string): HTMLElement {
    const act = () => {
      if (reveal(line, this.root)) return;
      navigator.clipboard?.writeText(line).then(
        () => this.context.note(`copied ${line}`),
        () => this.context.note(line),
      ) ?? this.context.note(line);
    };
    return button(line, act, `source line ${line}`, "dts-code");
  }
}

/** Why no rank is named: title and sentence. */
function nobody(view: StepView): [string, string] {
  if (view.collectives.some((c) => c.last !== null))
    return ["Nobody is late", "All ranks begin the collectives of this step together, to within half a percent of it."];
  const seen = recorders(view);
  return seen.size < Math.min(2, view.lanes.length)
    ? ["Not known who is late", `Of this step only rank ${[...seen]} recorded its collectives; when the others began is not known.`]
    : ["Not known who is late", "No collective of this step was seen on two ranks; sends and receives tell of their two ranks alone."];
}

function signed(ms: number): string {
  return Math.abs(ms) < 0.05 ? "0.0" : `${ms > 0 ? "+" : ""}${fixed(ms, 1)}`;
}
