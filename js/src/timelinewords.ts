// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What the timeline says beside its picture: the legend, step and collective in words, its intervals as CSV.
import type { Collective } from "./collectives";
import { h } from "./dom";
import { clocks } from "./facts";
import { csvField, duration, integer, plural } from "./format";
import type { Model } from "./model";
import type { StepView } from "./stepview";

export function legend(): HTMLElement {
  const items = [
    ["compute", "compute"],
    ["overlapped", "comm under compute"],
    ["exposed", "exposed comm"],
    ["idle", "idle"],
  ];
  return h("span.dts-legend", {}, ...items.map(([name, text]) => h("span", {}, h("i", { style: `background:var(--dts-${name})` }), text)));
}

interface Shown {
  /** Lanes that are drawn. */
  readonly shown: number;
  readonly following: boolean;
  /** What the page lacks of the step. */
  readonly missing: string;
}

/** Beside the title: how long the step took, how far the clocks agree, what is left out; or why there is nothing. */
export function stepWords(model: Model, step: number, view: StepView | null, { shown, following, missing }: Shown): string {
  if (!view) return missing || absent(model, step);
  const { hosts, uncertaintyMs } = clocks(model);
  const unsure = hosts > 1 ? "clocks of several hosts, uncertainty unknown" : "one clock";
  const clock = uncertaintyMs > 0 ? `clocks agree to ±${duration(uncertaintyMs)}` : unsure;
  const few = shown < view.lanes.length ? ` · ${shown} of ${plural(view.lanes.length, "rank")}, the latest first` : "";
  const slowed = view.lanes.some((lane) => lane.slowed) ? " (slowed by looking)" : "";
  const newest = model.matrix.exactBy === "sampled" && view.collectives.length ? "newest recorded" : "newest";
  const rest = `${few}${following ? ` · ${newest}` : ""}${missing ? ` · ${missing}` : ""}`;
  return `${duration(view.end - view.start)}${slowed} · ${clock}${rest}`;
}

function absent({ matrix, status }: Model, step: number): string {
  const first = matrix.stepAt(0);
  const inside = !matrix.columns || (step >= first && step <= matrix.lastStep);
  if (status.live || inside) return "no rank has finished this step";
  return `not in this run, whose steps are ${integer(first)} to ${integer(matrix.lastStep)}`;
}

export function collectiveWords(c: Collective, rank: number): string[] {
  const m = c.members.find((member) => member.rank === rank);
  const what = `${c.operation}${c.bucket >= 0 ? ` bucket ${c.bucket}` : ""} · group ${c.group}`;
  const waited = m && m.wait >= 0 ? `rank ${rank} waited ${duration(m.wait)}, transfer ${duration(c.transfer)}` : "";
  return [
    what,
    waited,
    ...(c.last === null ? [] : [`rank ${c.last} was last by ${duration(c.lateBy)}`]),
    ...(m?.line ? [m.line] : []),
  ].filter(Boolean);
}

export function timelineCsv(view: StepView | null): string {
  const lines = ["rank,kind,name,start_ms,duration_ms,row,line"];
  for (const lane of view?.lanes ?? []) {
    for (const [kind, set] of [
      ["compute", lane.compute],
      ["overlapped", lane.overlapped],
      ["exposed", lane.exposed],
    ] as const) {
      for (let i = 0; i < set.length; i += 2)
        lines.push([lane.rank, kind, "", set[i] - view!.start, set[i + 1] - set[i], "lane", ""].map(csvField).join());
    }
    for (const s of [...lane.spans(), ...lane.host])
      lines.push([lane.rank, s.kind, s.name, s.start - view!.start, s.end - s.start, s.row, s.line].map(csvField).join());
  }
  return lines.join("\n");
}
