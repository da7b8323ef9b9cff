// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The quantities of the overlap map, their direction and how a value becomes a place on the cost ramp.
import type { Worse } from "./lod";
import { niceCeil } from "./scales";

export interface Metric {
  readonly label: string;
  readonly unit: string;
  readonly worse: Worse;
  readonly what: string;
}

export const METRICS = {
  exposed: { label: "Exposed communication", unit: "ms", worse: "high", what: "communication without compute under it, ms a step" },
  ratio: { label: "Overlap ratio", unit: "", worse: "low", what: "share of communication under compute; 0.8 and above good, below 0.4 needs work" },
  wait: { label: "Wait", unit: "ms", worse: "high", what: "waiting for the last rank in collectives, ms a step" },
  step: { label: "Step time", unit: "ms", worse: "high", what: "ms a step; blank up to the median" },
  bandwidth: { label: "Bus bandwidth", unit: "GB/s", worse: "low", what: "bytes on the wire over transfer time, GB/s" },
} as const satisfies Record<string, Metric>;

export type MetricName = keyof typeof METRICS;
export const METRIC_NAMES = Object.keys(METRICS) as MetricName[];

/** What a metric's colours rest on: typical and extreme values seen so far. */
export interface Range {
  readonly median: number;
  readonly high: number;
  /** Median step time in ms; costs are judged against it. */
  readonly stepMs: number;
}

/** Value at the strong end of the ramp. */
export function strongEnd(name: MetricName, range: Range): number {
  if (name === "ratio") return 0;
  if (name === "bandwidth") return 0;
  const floor = name === "step" ? range.median * 1.2 : Math.max(0.1 * (range.stepMs || 0), 0.01);
  return niceCeil(Math.max(range.high || 0, floor || 0));
}

/** Value at the blank end of the ramp. */
export function blankEnd(name: MetricName, range: Range): number {
  if (name === "ratio") return 1;
  if (name === "bandwidth") return niceCeil(range.high || 1);
  return name === "step" ? range.median || 0 : 0;
}

/** Place on the cost ramp, 0 blank to 1 strong; NaN where there is no value. */
export function cost(name: MetricName, value: number, range: Range): number {
  if (name === "ratio") return bands(value);
  const [blank, strong] = [blankEnd(name, range), strongEnd(name, range)];
  return Math.min(1, Math.max(0, (value - blank) / (strong - blank || 1)));
}

/** Good (0.8 and above) stays near blank, below 0.4 is strong. */
function bands(ratio: number): number {
  if (ratio >= 0.8) return ((1 - ratio) / 0.2) * 0.15;
  if (ratio >= 0.4) return 0.25 + ((0.8 - ratio) / 0.4) * 0.3;
  return 0.65 + ((0.4 - Math.max(ratio, 0)) / 0.4) * 0.35;
}
