// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { total } from "../src/intervals";
import { type RankFacts, stepView } from "../src/stepview";

const wait = { kind: "collective_wait", name: "all_reduce", start: 150, end: 160, row: "host", line: null, bytes: Number.NaN };

function facts(onDevice: boolean): RankFacts {
  const device = new Map([["comm", { starts: [120], ends: [160] }]]);
  const known = { cpu: Number.NaN, exposedMs: 10, slowed: false, spans: () => [], host: [wait] };
  return { rank: 0, start: 0, end: 100, onDevice, device, ...known };
}

test("a device computes after its host, until its own last wait", () => {
  expect(total(stepView(0, [facts(true)], []).lanes[0].exposed)).toBe(10);
  expect(total(stepView(0, [facts(false)], []).lanes[0].exposed)).toBe(40);
});
