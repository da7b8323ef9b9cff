// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What the timeline says beside its picture: the legend, a collective in words, its intervals as CSV.
import type { Collective } from "./collectives";
import { h } from "./dom";
import { csvField, duration } from "./format";
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
