// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { busFactor, match, waits } from "../src/collectives";
import { instead, STEP_BEFORE } from "../src/instead";
import { total } from "../src/intervals";
import { laneRows } from "../src/lanerows";
import { geometry, hit, type MapState } from "../src/mapgeometry";
import { firstPixel, paintPixels } from "../src/mapraster";
import { PROFILED } from "../src/matrix";
import { cost } from "../src/metrics";
import { costs } from "../src/panels/status";
import { SvgPen } from "../src/pen";
import { TableStore } from "../src/store";
import { costliest, layout, nearest } from "../src/timelinedraw";
import { model } from "./capture";

/** All of a metric of `ranks` ranks, from column 0 to 1. */
function shown(matrix: MapState["matrix"], ranks: number): MapState {
  return {
    matrix,
    metric: "exposed",
    range: { median: 0, high: 30, largest: 30, stepMs: 85 },
    order: Array.from({ length: ranks }, (_, i) => i),
    blocks: new Map(),
    blockKind: "",
    from: 0,
    to: 1,
    columnMeans: new Float32Array(0),
    rowMeans: new Float32Array(0),
    longer: Number.NaN,
    findings: [],
    step: null,
    rank: null,
    hover: null,
  };
}

describe("the straggler capture", () => {
  const run = model();
  const view = run.view(15)!;

  it("has four lanes whose exposed time is that of the table", () => {
    expect(view.lanes.map((l) => l.rank)).toEqual([0, 1, 2, 3]);
    for (const lane of view.lanes) {
      const known = run.matrix.get("exposed", lane.rank, 15);
      // The fixture leaves out kernels under 0.5 ms, so that some communication looks exposed here that was not.
      expect(total(lane.exposed)).toBeGreaterThan(known - 0.6);
      expect(run.matrix.evidenceOf(lane.rank, 15)).toBe(PROFILED);
    }
    expect(run.matrix.get("exposed", 2, 15)).toBeLessThan(2);
    for (const rank of [0, 1, 3]) expect(run.matrix.get("exposed", rank, 15)).toBeGreaterThan(20);
  });

  it("leads to the step in the midst whose rows are here", () => {
    expect([run.clearest([12, 13, 14, 15]), run.clearest([1, 2, 15]), run.clearest([1, 2, 3]), run.clearest([])]).toEqual([
      14,
      15,
      2,
      null,
    ]);
  });

  it("shows rank 2 last, by the extra matmuls", () => {
    const worst = costliest(view)!;
    expect(worst.last).toBe(2);
    expect(worst.lateBy).toBeGreaterThan(24);
    const found = instead(view, worst)!;
    const most = [...found.rows].sort((a, b) => b.more - a.more)[0];
    expect(most.activity).toBe("compute");
    expect(most.more).toBeGreaterThan(24);
    expect(found.names[0].only).toBe(true);
    expect(found.names[0].count).toBe(20);
  });

  it("makes the others wait", () => {
    run.settle();
    for (const rank of [0, 1, 3]) expect(run.matrix.get("wait", rank, 15)).toBeGreaterThan(24);
    expect(run.matrix.get("wait", 2, 15)).toBeLessThan(run.matrix.get("wait", 0, 15));
    expect(run.matrix.get("bandwidth", 0, 15)).toBeGreaterThan(100);
  });

  it("finds the collective under the pointer", () => {
    const c = view.collectives[3];
    const m = c.members[0];
    expect(nearest(view, m.rank, (m.start + m.end) / 2, 0.01)?.key).toBe(c.key);
    expect(nearest(view, m.rank, view.start - 1000, 1)).toBeNull();
  });

  it("is found critical by the kernel, and the page says so", () => {
    expect(run.findings[0]).toMatchObject({ kind: "straggler", cause: "compute", ranks: [2], severity: "critical" });
  });
});

const ORDER = ["compute", "comm", "copies", "host"];

const row = (rank: number, seq: number, start: number, end: number, more = {}) => ({
  rank,
  seq,
  start,
  end,
  group: "0",
  operation: "all_reduce",
  source: 2,
  order: 0,
  enqueue: start,
  bytes: 1 << 20,
  bucket: 0,
  phase: null,
  groupSize: 2,
  synchronous: false,
  line: null,
  ...more,
});

describe("collectives", () => {
  it("are matched over ranks: wait is the latest start less one's own", () => {
    fc.assert(
      fc.property(fc.array(fc.array(fc.nat(1000), { minLength: 3, maxLength: 3 }), { minLength: 1, maxLength: 8 }), (starts) => {
        const rows = starts.flatMap((s, seq) => s.map((at, rank) => row(rank, seq, seq * 2000 + at, seq * 2000 + 1500)));
        const list = match(rows);
        expect(list.length).toBe(starts.length);
        const sums = waits(list);
        for (const rank of [0, 1, 2]) {
          expect(sums.get(rank)).toBe(starts.reduce((sum, s) => sum + Math.max(...s) - s[rank], 0));
        }
      }),
    );
  });

  it("count once where two sources saw them, the more exact", () => {
    const list = match([row(0, 0, 0, 10), row(0, 0, 1, 9, { source: 3 }), row(1, 0, 5, 10), row(1, 0, 6, 9, { source: 3 })]);
    expect(list.map((c) => [c.last, c.lateBy, c.transfer])).toEqual([[1, 5, 3]]);
  });

  it("take the last row of one that was written while pending", () => {
    const [c] = match([row(0, 0, 0, Number.NaN), row(1, 0, 5, 10), row(0, 0, 0, 10)]);
    expect(c.members.length).toBe(2);
    expect(c.transfer).toBe(5);
  });

  it("have no wait between sender and receiver", () => {
    const [c] = match([row(0, 0, 0, 10, { operation: "send" }), row(1, 0, 5, 10, { operation: "recv" })]);
    expect([c.last, c.members[0].wait]).toEqual([null, Number.NaN]);
  });

  it("have nccl-tests' factors", () => {
    expect([
      busFactor("all_reduce", 4),
      busFactor("all_gather_into_tensor", 4),
      busFactor("broadcast", 4),
      busFactor("all_reduce", 1),
    ]).toEqual([1.5, 0.75, 1, 0]);
  });
});

describe("the map", () => {
  it("finds again the cell that it drew, for any size", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 300, max: 3000 }),
        fc.integer({ min: 1, max: 200 }),
        fc.integer({ min: 1, max: 500 }),
        fc.nat(),
        fc.nat(),
        (width, ranks, columns, r, c) => {
          const g = geometry(width, ranks, columns, 14);
          const [rank, column] = [r % ranks, c % columns];
          const order = Array.from({ length: ranks }, (_, i) => i);
          const found = hit(g, { from: 0, to: columns, order }, g.left + (column + 0.5) * g.cell, g.top + (rank + 0.5) * g.row);
          expect(found).toEqual({ row: rank, column });
          expect(hit(g, { from: 0, to: columns, order }, g.left - 1, g.top)).toBeNull();
          expect(g.total).toBeLessThanOrEqual(520);
        },
      ),
    );
  });

  it("shows a single bad step among ten thousand", () => {
    const run = model();
    const { matrix } = run;
    const columns = 10_000;
    const data = new Float32Array(4 * columns).fill(0);
    data[2 * columns + 7654] = 30;
    matrix.pyramids.exposed.fill(4, columns, data);
    const pixels = new Uint32Array(500 * 4);
    const table = new Uint32Array(256).map((_, i) => i + 1);
    const state = { ...shown(matrix, 4), to: columns };
    paintPixels(pixels, { first: 0, wide: 500, h: 4 }, { w: 500, columns }, state, table);
    const dark = [...pixels].flatMap((p, i) => (p === 256 ? [[Math.floor(i / 500), i % 500]] : []));
    expect(dark).toContainEqual([2, Math.floor(7654 / 20)]);
    expect(dark.every(([y, x]) => y === 2 && Math.abs(x - 382) <= 1)).toBe(true);
  });

  it("shows the same of a map that was panned to as of one that is drawn there at once", () => {
    const run = model();
    const { matrix } = run;
    const [ranks, most] = [6, 900];
    matrix.pyramids.exposed.fill(
      ranks,
      most,
      Float32Array.from({ length: ranks * most }, (_, k) => (k % 11 ? (k * 7919) % 31 : Number.NaN)),
    );
    const table = new Uint32Array(256).map((_, i) => i + 1);
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 40, max: 600 }),
        fc.integer({ min: 0, max: 299 }),
        fc.double({ min: 0.1, max: 1, noNaN: true }),
        fc.double({ min: 0.05, max: 0.95, noNaN: true }),
        (h, columns, from, density, share) => {
          const w = Math.max(1, Math.min(columns, Math.round(columns * density)));
          const state = { ...shown(matrix, ranks), from, to: from + columns };
          const first = firstPixel(state, { w, columns });
          const whole = new Uint32Array(w * h);
          paintPixels(whole, { first, wide: w, h }, { w, columns }, state, table);
          const cut = Math.floor(w * share);
          for (const [x, wide] of [
            [0, cut],
            [cut, w - cut],
          ]) {
            const part = new Uint32Array(wide * h);
            paintPixels(part, { first: first + x, wide, h }, { w, columns }, state, table);
            for (let y = 0; y < h; y++)
              expect(part.subarray(y * wide, (y + 1) * wide)).toEqual(whole.subarray(y * w + x, y * w + x + wide));
          }
          // The last column is within, and of the first no more than a pixel is cut.
          expect(Math.floor(((first + w) * columns) / w)).toBeGreaterThanOrEqual(from + columns);
          expect(Math.floor(((first - 1) * columns) / w)).toBeLessThan(from);
        },
      ),
    );
  });

  it("keeps the bands of the overlap ratio apart, and is blank where all is well", () => {
    const range = { median: 1, high: 1, largest: 1, stepMs: 58 };
    const [good, middling, bad] = [0.85, 0.6, 0.3].map((v) => cost("ratio", v, range));
    expect(good).toBeLessThan(0.2);
    expect(middling).toBeGreaterThan(0.2);
    expect(bad).toBeGreaterThan(0.6);
    expect(cost("exposed", 0.3, { median: 0.3, high: 0.5, largest: 0.5, stepMs: 58 })).toBeLessThan(0.1);
    expect(cost("step", 58, { median: 58, high: 60, largest: 60, stepMs: 58 })).toBe(0);
  });
});

describe("the timeline", () => {
  it("gives every lane its place without overlap", () => {
    const view = model().view(15)!;
    const { lanes } = view;
    const l = layout(1000, view, lanes, new Set([2]));
    let y = 0;
    for (const box of l.boxes) {
      expect(box.y).toBeGreaterThanOrEqual(y);
      y = box.y + box.height;
    }
    expect(l.boxes[2].rows.length).toBeGreaterThan(0);
    expect(l.axis).toBeGreaterThanOrEqual(y);
  });
});

describe("an unfolded lane", () => {
  it("has compute, communication by group, copies and host, in that order", () => {
    const view = model().view(15)!;
    for (const lane of view.lanes) {
      const names = laneRows(lane, view).map((r) => r.name);
      const kinds = names.map((n) => n.split(" ")[0]);
      expect(kinds.indexOf("compute")).toBe(0);
      expect(kinds).toContain("comm");
      expect([...kinds].sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b))).toEqual(kinds);
    }
  });

  it("shows the recorded collectives of each group where no profiler was", () => {
    const view = model().view(15)!;
    const lane = { ...view.lanes[0], exact: false, spans: () => [], host: [] };
    const rows = laneRows(lane, view);
    expect(rows.map((r) => r.name)).toEqual(["compute", `comm ${view.collectives[0].group}`]);
    expect(rows[1].spans.length).toBe(view.collectives.length);
  });
});

describe("a rank that begins the step late", () => {
  it("is late by the step before", () => {
    const view = model().view(15)!;
    const lanes = view.lanes.map((l) => (l.rank === 2 ? { ...l, start: l.start + 20, spans: () => [], device: new Map(), host: [] } : l));
    const found = instead({ ...view, lanes, start: Math.min(...lanes.map((l) => l.start)) }, costliest(view)!)!;
    expect(found.rows[0].activity).toBe(STEP_BEFORE);
    expect(found.rows[0].more).toBeGreaterThan(19);
  });
});

describe("a table", () => {
  it("lets rows go of steps that are far behind, however few the rows are", () => {
    const store = new TableStore({ rank: "i32", step: "i32" }, 1_000_000);
    for (let step = 0; step < 60_000; step += 100) {
      const steps = Int32Array.from({ length: 100 }, (_, i) => step + i);
      store.append({ length: 100, columns: { rank: new Int32Array(100), step: steps }, lists: {} }, 10_000);
    }
    for (const step of [50_000, 59_999]) expect(store.holds(step)).toBe(true);
    expect(store.holds(10_000)).toBe(false);
    // A segment goes as a whole, so up to one more is kept.
    expect(store.total).toBeLessThanOrEqual(10_000 + 2 * 16_384);
    expect(store.total + store.evicted).toBe(60_000);
  });

  it("lets the oldest rows go and finds those of a step in one pass", () => {
    const store = new TableStore({ rank: "i32", step: "i32" }, 50_000);
    for (let step = 0; step < 400; step++) {
      const rank = new Int32Array(500).fill(1);
      store.append({ length: 500, columns: { rank, step: new Int32Array(500).fill(step) }, lists: {} });
    }
    expect(store.total).toBeLessThanOrEqual(50_000 + 16_384);
    expect(store.total + store.evicted).toBe(200_000);
    const seen = new Map<number, number>();
    store.eachOf(new Set([10, 390, 399]), (c, i) => seen.set(c.step[i], (seen.get(c.step[i]) ?? 0) + 1));
    expect(seen).toEqual(
      new Map([
        [390, 500],
        [399, 500],
      ]),
    );
    let count = 0;
    store.each(390, () => count++);
    expect(count).toBe(500);
  });
});

describe("an SVG", () => {
  it("can't be broken out of by a name", () => {
    const ruler = { measure: () => 1 } as never;
    const pen = new SvgPen(10, 10, 'a"b', "#fff", ruler);
    pen.text('<script>"&', 1, 1, { fill: "#000" });
    expect(pen.toString()).toContain("&lt;script&gt;&quot;&amp;");
    expect(pen.toString()).not.toContain("<script");
  });
});

describe("the status line", () => {
  it("calls lost what was not recorded, and not shown what is in the run directory all the same", () => {
    const run = model();
    run.status = { ...run.status, skipped: 38 };
    expect(costs(run)).toEqual(["no row lost", "38 rows not shown"]);
  });
});
