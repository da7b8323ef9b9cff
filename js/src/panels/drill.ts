// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Drill-down: the collectives of this step on this rank, who came last, and what that rank did instead.
import type { Collective } from "../collectives";
import { button, fill, h, say } from "../dom";
import { csvField, digitsFor, fixed, integer, number, plural } from "../format";
import { RECORDED } from "../matrix";
import { RAREST_SAMPLE } from "../model";
import { type Context, copyMenu, frame, type Panel } from "../panel";
import { exposedOf, recorders, type StepView } from "../stepview";
import { costliest } from "../timelinedraw";
import { InsteadCard } from "./instead";

const HEADS = ["#", "operation", "bucket", "MiB", "wait ms", "transfer ms", "exposed ms", "last"];
const [BUCKET, SIZE] = [2, 3];
const UNITS = [
  { name: "MiB", size: 2 ** 20 },
  { name: "KiB", size: 1024 },
  { name: "B", size: 1 },
];
const MOST_ROWS = 200;

interface Row {
  readonly collective: Collective;
  readonly wait: number;
  readonly exposed: number;
}

export class DrillPanel implements Panel {
  readonly root: HTMLElement;
  private readonly left = frame("collectives", "Collectives");
  private readonly right: InsteadCard;
  private readonly body = h("tbody");
  private readonly table: HTMLElement;
  private readonly unrecorded = h("p.dts-sub.dts-unrecorded");
  private readonly size: HTMLElement;
  private unit = UNITS[0];
  private shown = "";
  private rows: Row[] = [];

  constructor(private readonly context: Context) {
    const heads = HEADS.map((t, i) => h("th", { scope: "col", class: i === 1 ? "dts-text" : i === BUCKET ? "dts-bucket" : "" }, t));
    this.size = heads[SIZE];
    const head = h("thead", {}, h("tr", {}, ...heads));
    this.table = h("table.dts-table", { "aria-label": "collectives of the step on the rank" }, head, this.body);
    this.left.body.append(h("div.dts-scroll", {}, this.table));
    this.left.controls.append(copyMenu(context, "collectives", null, () => this.csv()));
    this.right = new InsteadCard(context);
    this.root = h("div.dts-cards", {}, this.left.root, this.right.root, this.unrecorded);
  }

  update(): void {
    const { model, place } = this.context;
    const view = place.step === null ? null : model.view(place.step);
    const some = !!view?.collectives.length;
    this.left.root.hidden = this.right.root.hidden = !some;
    this.unrecorded.hidden = some || !view || !this.sampled(view);
    this.root.hidden = !some && this.unrecorded.hidden;
    if (!view || !some) return;
    const chosen = view.collectives.find((c) => c.key === place.collective) ?? costliest(view);
    const rank = place.rank ?? this.waiting(view, chosen);
    const key = [
      view.step,
      rank,
      chosen?.key,
      model.tables.collectives.version,
      model.tables.spans.version,
      model.tables.host.version,
      model.tables.steps.version,
    ].join();
    if (key === this.shown) return;
    this.shown = key;
    this.collectives(view, rank, chosen);
    this.right.show(view, chosen);
  }

  /** Where the step's collectives were not recorded: says so, and leads to the nearest step of which they were. */
  private sampled(view: StepView): boolean {
    const { matrix } = this.context.model;
    if (matrix.exactBy !== "sampled") return false;
    const here = matrix.column(view.step);
    const whole = matrix.column(this.context.model.newestWhole ?? matrix.lastStep) + 1;
    const told = (row: number, c: number) => matrix.evidence.levels[0].get(row, c) >= RECORDED;
    const near =
      nearestColumn(here, whole, (c) => matrix.ranks.every((_, row) => told(row, c))) ??
      nearestColumn(here, whole, (c) => matrix.ranks.some((_, row) => told(row, c)));
    const step = near === null ? null : matrix.stepAt(near);
    const text = `The collectives of step ${integer(view.step)} were not recorded: to cost little that is done in a sample of steps. The exposed time is what the ranks measured.`;
    const key = `${view.step}/${step}`;
    if (this.unrecorded.dataset.key !== key) {
      this.unrecorded.dataset.key = key;
      const go = step !== null && button(`step ${integer(step)} was recorded ›`, () => this.context.go({ step, collective: null }));
      fill(this.unrecorded, `${text} `, go);
    }
    return true;
  }

  /** Without a chosen rank: the first that waited for the late one. */
  private waiting(view: StepView, chosen: Collective | null): number {
    const { members, last } = chosen ?? view.collectives[0];
    return members.find((m) => m.rank !== last)?.rank ?? view.lanes[0].rank;
  }

  private collectives(view: StepView, rank: number, chosen: Collective | null): void {
    say(this.left.title, `Collectives of step ${view.step}, rank ${rank}`);
    const lane = view.lanes.find((l) => l.rank === rank);
    this.rows = view.collectives.flatMap((collective) => {
      const m = collective.members.find((member) => member.rank === rank);
      return m ? [{ collective, wait: m.wait, exposed: lane ? exposedOf(lane, m.start, m.end) : Number.NaN }] : [];
    });
    const digits = { wait: digitsFor(this.rows.map((r) => r.wait)), transfer: 2, exposed: digitsFor(this.rows.map((r) => r.exposed)) };
    const largest = Math.max(...this.rows.map((r) => r.collective.bytes));
    this.unit = UNITS.find((unit) => largest >= unit.size) ?? UNITS[UNITS.length - 1];
    say(this.size, this.unit.name);
    this.table.classList.toggle(
      "dts-bucketless",
      this.rows.every((r) => r.collective.bucket < 0),
    );
    const heavy = 0.02 * (view.end - view.start);
    const late = (r: Row) => r.wait > heavy;
    const focused = this.body.contains(document.activeElement);
    fill(this.body, ...this.rows.slice(0, MOST_ROWS).map((r, i) => this.row(r, i, digits, late(r), r.collective === chosen)));
    if (focused) this.body.querySelector<HTMLElement>(".dts-chosen")?.focus();
    say(this.left.sub, [this.amount(view, rank), partly(view)].filter(Boolean).join(" · "));
  }

  private amount(view: StepView, rank: number): string {
    if (this.rows.length > MOST_ROWS) return `the first ${MOST_ROWS} of ${this.rows.length}`;
    if (this.rows.length) return "";
    return this.estimated(view.step, rank) ? "not recorded on this rank in this step" : "this rank called none";
  }

  private estimated(step: number, rank: number): boolean {
    const { matrix } = this.context.model;
    return matrix.exactBy === "sampled" && !(matrix.evidenceOf(rank, step) >= RECORDED);
  }

  private row(r: Row, i: number, digits: { wait: number; transfer: number; exposed: number }, late: boolean, chosen: boolean): HTMLElement {
    const c = r.collective;
    const pick = () => this.context.go({ collective: c.key });
    const line = c.members.find((m) => m.line)?.line;
    const cells: [string, string][] = [
      [String(i + 1), "dts-quiet"],
      [c.operation, "dts-text"],
      [c.bucket >= 0 ? String(c.bucket) : "–", "dts-bucket"],
      [number(c.bytes / this.unit.size), ""],
      [fixed(r.wait, digits.wait), late ? "dts-costs" : ""],
      [fixed(c.transfer, digits.transfer), ""],
      [fixed(r.exposed, digits.exposed), ""],
      [c.last === null ? "–" : `rank ${c.last}`, late ? "dts-costs" : ""],
    ];
    return h(
      "tr",
      {
        tabindex: 0,
        "aria-selected": chosen,
        class: chosen ? "dts-chosen" : "",
        title: `process group ${c.group}${c.phase ? `, ${c.phase}` : ""}${line ? `, ${line}` : ""}`,
        onclick: pick,
        onkeydown: (e) => this.key(e as KeyboardEvent, pick),
      },
      ...cells.map(([text, name]) => h("td", { class: name }, text)),
    );
  }

  private key(e: KeyboardEvent, pick: () => void): void {
    const row = e.currentTarget as HTMLElement;
    if (e.key === "Enter" || e.key === " ") pick();
    else if (e.key === "ArrowDown") (row.nextElementSibling as HTMLElement | null)?.focus();
    else if (e.key === "ArrowUp") (row.previousElementSibling as HTMLElement | null)?.focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  private csv(): string {
    const lines = ["position,process_group,operation,bucket,bytes,wait_ms,transfer_ms,exposed_ms,last_rank"];
    this.rows.forEach(({ collective: c, wait, exposed }, i) => {
      lines.push(
        [i + 1, c.group, c.operation, c.bucket >= 0 ? c.bucket : null, c.bytes, wait, c.transfer, exposed, c.last].map(csvField).join(),
      );
    });
    return lines.join("\n");
  }
}

/** Says so where only some ranks recorded the step: the others may have been later. */
function partly(view: StepView): string {
  const seen = recorders(view);
  return seen.size < view.lanes.length && view.collectives.some((c) => c.groupSize > c.members.length)
    ? `recorded by ${plural(seen.size, "rank")} of ${view.lanes.length}`
    : "";
}

/** The column nearest to `here`, among the first `columns`, that the test admits; null where none near does. */
function nearestColumn(here: number, columns: number, admits: (column: number) => boolean): number | null {
  for (let away = 0; away <= RAREST_SAMPLE; away++) {
    for (const c of [here - away, here + away]) if (c >= 0 && c < columns && admits(c)) return c;
  }
  return null;
}
