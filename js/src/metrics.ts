// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The quantities of the overlap map, their direction and how a value becomes a place on the cost ramp.
import type { Worse } from "./lod";
import { niceCeil } from "./scales";

export interface Metric {
  readonly label: string;
  readonly unit: string;
  readonly worse: Worse;
  /** Beside the title. */
  readonly what: string;
  /** How it is defined, for whoever points at the title. */
  readonly means: string;
}

export const METRICS = {
  exposed: {
    label: "Exposed communication",
    unit: "ms",
    worse: "high",
    what: "ms a step, rank × step",
    means:
      "Communication time without compute under it. On a CPU compute is the time in which the training thread is not blocked in a collective or its wait.",
  },
  ratio: {
    label: "Overlap ratio",
    unit: "",
    worse: "low",
    what: "share of communication under compute; 0.8 is good, below 0.4 needs work",
    means:
      "Communication time under compute over all communication time. 0.8 and above is good, 0.4 to 0.8 middling, below 0.4 needs work.",
  },
  wait: {
    label: "Wait",
    unit: "ms",
    worse: "high",
    what: "for the last rank, ms a step, summed over collectives",
    means: "Sum over the step's collectives of the latest start over ranks minus this rank's start.",
  },
  step: {
    label: "Step time",
    unit: "ms",
    worse: "high",
    what: "ms; blank up to the median",
    means: "From the start of the step to its end.",
  },
  bandwidth: {
    label: "Bus bandwidth",
    unit: "GB/s",
    worse: "low",
    what: "wire bytes over transfer time, GB/s",
    means:
      "Bytes on the wire (nccl-tests' factors) of the step's collectives over the sum of their transfer times, the shortest duration over ranks.",
  },
} as const satisfies Record<string, Metric>;

export type MetricName = keyof typeof METRICS;
export const METRIC_NAMES = Object.keys(METRICS) as MetricName[];

/** What a metric's colours rest on: typical and extreme values seen so far. */
export interface Range {
  readonly median: number;
  readonly high: number;
  readonly largest: number;
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
  return costs(name, range)(value);
}

/** The same for many values of one metric. */
export function costs(name: MetricName, range: Range): (value: number) => number {
  if (name === "ratio") return bands;
  const [blank, strong] = [blankEnd(name, range), strongEnd(name, range)];
  const factor = 1 / (strong - blank || 1);
  return (value) => Math.min(1, Math.max(0, (value - blank) * factor));
}

/** Good (0.8 and above) stays near blank, below 0.4 is strong. */
function bands(ratio: number): number {
  if (ratio >= 0.8) return ((1 - ratio) / 0.2) * 0.15;
  if (ratio >= 0.4) return 0.25 + ((0.8 - ratio) / 0.4) * 0.3;
  return 0.65 + ((0.4 - Math.max(ratio, 0)) / 0.4) * 0.35;
}
