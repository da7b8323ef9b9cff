// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The columns that the panels use, a subset of dtscope_jupyter/schema.py. Times become milliseconds since the store's epoch.

export type Kind = "i32" | "real" | "time" | "text" | "flag" | "list";
export type Spec = Readonly<Record<string, Kind>>;

export const TABLES = {
  steps: {
    rank: "i32",
    step: "i32",
    start_ns: "time",
    end_ns: "time",
    comm_ms: "real",
    overlap_ms: "real",
    exposed_ms: "real",
    synced_norm: "real",
    source: "text",
    disturbed: "flag",
    thread_cpu_ms: "real",
  },
  collectives: {
    rank: "i32",
    step: "i32",
    seq: "real",
    process_group: "text",
    group_size: "i32",
    operation: "text",
    bytes: "real",
    bucket: "i32",
    phase: "text",
    enqueue_ns: "time",
    start_ns: "time",
    end_ns: "time",
    asynchronous: "flag",
    line: "text",
    source: "text",
  },
  gradients: {
    rank: "i32",
    step: "i32",
    parameter_id: "i32",
    ready_ns: "time",
    local_norm: "real",
    synced_norm: "real",
    nonfinite: "real",
  },
  parameters: {
    rank: "i32",
    parameter_id: "i32",
    parameter: "text",
    module: "text",
    shape: "text",
    elements: "real",
    bucket: "i32",
  },
  gradient_tiles: {
    rank: "i32",
    step: "i32",
    parameter_id: "i32",
    height: "i32",
    width: "i32",
    values: "list",
    histogram: "list",
  },
  host: {
    rank: "i32",
    step: "i32",
    kind: "text",
    start_ns: "time",
    end_ns: "time",
    bytes: "real",
    detail: "text",
    line: "text",
  },
  spans: {
    rank: "i32",
    step: "i32",
    kind: "text",
    name: "text",
    start_ns: "time",
    end_ns: "time",
    stream: "i32",
    bytes: "real",
    process_group: "text",
    line: "text",
  },
  devices: {
    rank: "i32",
    time_ns: "time",
    device: "text",
    name: "text",
    utilization: "real",
    memory_bytes: "real",
    clock_mhz: "real",
    power_w: "real",
    temperature_c: "real",
    throttle: "text",
    link_rx_bytes_s: "real",
    link_tx_bytes_s: "real",
  },
  clocks: {
    rank: "i32",
    host: "text",
    boot_id: "text",
    offset_ns: "real",
    uncertainty_ns: "real",
  },
  groups: { rank: "i32", process_group: "text", description: "text", backend: "text" },
  notes: { rank: "i32", step: "i32", time_ns: "time", kind: "text", name: "text", value: "real" },
} as const satisfies Record<string, Spec>;

export type TableName = keyof typeof TABLES;
export const TABLE_NAMES = Object.keys(TABLES) as TableName[];

/** Of these tables a page that follows a run keeps no rows of steps that are further behind: a step can be asked for. */
export const OF_STEPS: ReadonlySet<TableName> = new Set(["steps", "collectives", "gradients", "gradient_tiles", "host", "spans"]);
export const HORIZON = 10_000;

/** Most rows that a page keeps of each table; older ones make place. */
export const LIMITS: Readonly<Record<TableName, number>> = {
  steps: 60_000,
  collectives: 200_000,
  gradients: 300_000,
  parameters: 200_000,
  gradient_tiles: 2_000,
  host: 200_000,
  spans: 1_200_000,
  devices: 60_000,
  clocks: 20_000,
  groups: 20_000,
  notes: 20_000,
};
