// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { blank } from "../src/decode";
import { Fetching } from "../src/fetching";
import { cellLine } from "../src/source";
import { TABLES } from "../src/tables";
import { message, model } from "./capture";

describe("a step that the page lacks", () => {
  it("is asked for once, and what is said follows the time", () => {
    let now = 0;
    const asked: number[] = [];
    const fetching = new Fetching(
      (step) => asked.push(step),
      () => now,
    );
    fetching.want(7);
    fetching.want(7);
    expect(asked).toEqual([7]);
    expect(fetching.words(7, false)).toContain("asking the kernel");
    now = 2000;
    expect(fetching.words(7, false)).toBe("the kernel is busy; its rows will be fetched when it answers");
    expect(fetching.words(7, true)).toContain("the kernel is gone");
    now = 61_000;
    fetching.want(7);
    expect(fetching.words(7, false)).toContain("choose the step again");
    fetching.retry(7);
    fetching.want(7);
    expect(asked).toEqual([7, 7]);
    fetching.arrived(7);
    expect(fetching.pending).toBe(false);
    fetching.want(7);
    expect(asked).toEqual([7, 7]);
    fetching.forget();
    fetching.want(7);
    expect(asked).toEqual([7, 7, 7]);
  });

  it("is not waited for by a page without a kernel", () => {
    const fetching = new Fetching(null);
    fetching.want(7);
    expect(fetching.pending).toBe(false);
    expect(fetching.words(7, false)).toContain("this page does not hold its rows");
  });

  it("is drawn from what the kernel sent, beside the newest", () => {
    const whole = model();
    const { header, buffers } = message();
    const parts = (header.parts as { table: string }[]).filter((p) => p.table === "clocks");
    const run = model();
    run.ingest({ header: { ...header, parts, reset: true }, buffers });
    expect(run.view(15)).toBeNull();
    run.matrix.set("step", 0, 15, 1);
    expect(run.lacks(15)).toBe(true);
    run.ingestStep({ header: { ...header, kind: "step", step: 15 }, buffers });
    expect(run.lacks(15)).toBe(false);
    expect(run.tables.steps.total).toBe(0);
    const [shown, known] = [run.view(15)!, whole.view(15)!];
    expect(shown.collectives.length).toBe(known.collectives.length);
    expect(shown.lanes.map((l) => l.exposed.length)).toEqual(known.lanes.map((l) => l.exposed.length));
    whole.settle();
    for (const rank of [0, 1, 2, 3])
      for (const metric of ["exposed", "wait", "step"] as const)
        expect(run.matrix.get(metric, rank, 15)).toBeCloseTo(whole.matrix.get(metric, rank, 15), 3);
  });

  it("knows what trains on a device from samples of other steps", () => {
    const run = model();
    const columns = Object.fromEntries(Object.entries(TABLES.devices).map(([name, kind]) => [name, blank(kind, 4)]));
    columns.rank.set([0, 1, 2, 3]);
    columns.device.fill(run.pool.code("cuda:0"));
    run.tables.devices.append({ columns, lists: {}, length: 4 });
    const { header, buffers } = message();
    run.ingestStep({ header: { ...header, kind: "step", step: 15 }, buffers });
    expect(run.fetched(15)?.devices.total).toBe(0);
    expect(run.view(15)!.lanes.map((l) => l.onDevice)).toEqual([true, true, true, true]);
  });

  it("makes place for others", () => {
    const run = model();
    const { header, buffers } = message();
    for (let step = 0; step < 20; step++) run.ingestStep({ header: { ...header, kind: "step", step }, buffers });
    expect([run.fetched(0), run.fetched(19) !== null]).toEqual([null, true]);
  });
});

describe("a source line", () => {
  it("may be of a cell", () => {
    expect(cellLine("Cell In[3]:12")).toEqual({ cell: 3, line: 12 });
    expect(cellLine("/home/me/train.py:12")).toBeNull();
  });
});
