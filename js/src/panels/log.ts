// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Log panel: the lines of the ranks, filtered by rank and words; only the last ones are in the page's tree.
import { choice, fill, h, say } from "../dom";
import { integer, plural } from "../format";
import { type Context, frame, type Panel } from "../panel";

const SHOWN = 500;

export class LogPanel implements Panel {
  readonly root: HTMLElement;
  private readonly frame = frame("log", "Log");
  private readonly list = h("div.dts-log", { tabindex: 0, role: "log", "aria-label": "lines of the ranks' logs" });
  private readonly search: HTMLInputElement;
  private readonly rank: ReturnType<typeof choice>;
  private only: number | null = null;
  private shown = "";
  private known = 0;

  constructor(private readonly context: Context) {
    this.search = h("input.dts-search", {
      type: "search",
      placeholder: "search",
      "aria-label": "search the log",
      size: 14,
      oninput: () => context.redraw(),
    });
    this.rank = choice("rank", [["", "all"]], "", (v) => {
      this.only = v === "" ? null : Number(v);
      context.redraw();
    });
    this.frame.controls.append(this.rank, this.search);
    this.frame.body.append(this.list);
    this.root = this.frame.root;
  }

  update(): void {
    const { model } = this.context;
    if (this.root.hidden) return;
    if (model.worldSize !== this.known) this.options(model.worldSize);
    const { logs } = model;
    const { rank } = this.context.place;
    const key = [logs.version, this.only, this.search.value, rank].join("|");
    if (key === this.shown) return;
    this.shown = key;
    const lines = logs.select(this.only, this.search.value);
    const atEnd = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 8;
    const rows = lines.slice(-SHOWN).map((l) => {
      const line = h("div", { class: l.rank === rank ? "dts-here" : "" }, h("span.dts-quiet", {}, `${l.rank}`), l.text);
      line.addEventListener("click", () => getSelection()?.isCollapsed && this.context.go({ rank: l.rank }));
      return line;
    });
    fill(this.list, ...rows);
    this.list.classList.toggle("dts-chosen", rank !== null);
    if (!lines.length) fill(this.list, h("p.dts-sub", {}, logs.lines.length ? "No line matches." : "The ranks have printed nothing yet."));
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
    const older = lines.length - SHOWN + logs.dropped;
    say(
      this.frame.sub,
      older > 0 ? `the last ${integer(SHOWN)}; ${plural(older, "older line")} in the ranks' log.txt` : plural(lines.length, "line"),
    );
  }

  private options(size: number): void {
    this.known = size;
    this.rank.select.replaceChildren(
      h("option", { value: "" }, "all"),
      ...Array.from({ length: size }, (_, r) => h("option", { value: r, selected: r === this.only }, String(r))),
    );
  }
}
