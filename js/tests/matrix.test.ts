// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { drawMap } from "../src/mapdraw";
import { geometry, type MapState, margin } from "../src/mapgeometry";
import { ESTIMATED, PROFILED, RECORDED, StepMatrix } from "../src/matrix";
import { colorsOf } from "../src/palette";
import { fitted } from "../src/pen";
import { Notes } from "./notes";

function drawn(matrix: StepMatrix, more: Partial<MapState> = {}, gutter = 0): Notes {
  const notes = new Notes();
  const state: MapState = {
    matrix,
    metric: "exposed",
    range: { median: 1, high: 5, largest: 5, stepMs: 10 },
    order: matrix.ranks.map((_, i) => i),
    blocks: new Map(),
    blockKind: "rank",
    from: 0,
    to: matrix.columns,
    columnMeans: new Float32Array(matrix.columns),
    rowMeans: new Float32Array(matrix.ranks.length).fill(1),
    longer: matrix.sampledLonger,
    findings: [],
    step: null,
    rank: null,
    hover: null,
    ...more,
  };
  const g = geometry(1000, matrix.ranks.length, matrix.columns, 14, gutter);
  drawMap(notes, g, state, colorsOf("light"), 1, () => {
    throw new Error("few cells are strokes");
  });
  return notes;
}

describe("what a cell rests on", () => {
  it("is marked only where some cells are more exact than others", () => {
    const matrix = new StepMatrix(1 << 16);
    for (let step = 0; step < 16; step++) {
      matrix.set("exposed", 0, step, 1);
      matrix.witness(0, step, RECORDED);
    }
    expect(matrix.exactBy).toBe("");
    expect(drawn(matrix).circles).toBe(0);
    for (let step = 16; step < 32; step++) {
      matrix.set("exposed", 0, step, 1);
      matrix.witness(0, step, step % 4 ? ESTIMATED : RECORDED);
    }
    expect(matrix.exactBy).toBe("sampled");
    expect([15, 16, 17].map((step) => matrix.marked(0, step))).toEqual([true, true, false]);
    const notes = drawn(matrix);
    expect(notes.circles).toBe(20 + 1);
    expect(notes.texts.map((t) => t.text)).toContain("exact (sampled)");
  });

  it("says how much longer the steps are that are looked at, but not where they are as long as others", () => {
    const told = (extra: number) => {
      const matrix = new StepMatrix(1 << 16);
      for (let step = 0; step < 80; step++) {
        matrix.set("exposed", 0, step, 1);
        matrix.set("step", 0, step, 10 + (step % 3) * 0.01 + (step % 8 ? 0 : extra));
        matrix.witness(0, step, step % 8 ? ESTIMATED : RECORDED);
      }
      return drawn(matrix, { longer: matrix.sampledLonger })
        .texts.map((t) => t.text)
        .filter((text) => text.startsWith("exact"));
    };
    expect(told(0.7)).toEqual(["exact (sampled; these steps take 7 % longer)"]);
    expect(told(0)).toEqual(["exact (sampled)"]);
    expect(told(-3)).toEqual(["exact (sampled)"]);
  });

  it("does not blame sampling for steps that a profiler slowed", () => {
    const matrix = new StepMatrix(1 << 16);
    for (let step = 0; step < 200; step++) {
      matrix.set("exposed", 0, step, 1);
      matrix.set("step", 0, step, step % 4 || step < 64 ? 10 : 30);
      matrix.witness(0, step, step % 4 ? ESTIMATED : RECORDED);
    }
    expect(matrix.sampledLonger).toBeGreaterThan(1);
    const plain = drawn(matrix).rects;
    for (let step = 64; step < 200; step += 4) matrix.slow(step);
    expect(matrix.sampledLonger).toBe(0);
    // Each has a line under it.
    expect(drawn(matrix).rects - plain).toBe(34);
  });

  it("does not blame sampling for steps that are long beside others as long", () => {
    const matrix = new StepMatrix(1 << 16);
    for (let step = 0; step < 200; step++) {
      matrix.set("exposed", 0, step, 1);
      matrix.set("step", 0, step, step < 100 ? 10 : 50);
      matrix.witness(0, step, step % (step < 100 ? 16 : 2) ? ESTIMATED : RECORDED);
    }
    expect(matrix.sampledLonger).toBe(0);
  });

  it("is the best of the steps that share a column", () => {
    const matrix = new StepMatrix(4096);
    for (let step = 0; step < 5000; step++) {
      matrix.set("exposed", 0, step, step);
      matrix.witness(0, step, step === 4001 ? PROFILED : ESTIMATED);
    }
    expect(matrix.stride).toBe(2);
    expect([4000, 4001, 4002].map((step) => matrix.evidenceOf(0, step))).toEqual([PROFILED, PROFILED, ESTIMATED]);
    expect(matrix.get("exposed", 0, 4000)).toBe(4001);
  });

  it("is told of a whole map as well", () => {
    const matrix = new StepMatrix(1 << 16);
    matrix.load("exposed", [0, 1], 5, 2, Float32Array.of(1, 2, 3, 4));
    matrix.load("evidence", [0, 1], 5, 2, Float32Array.of(0, 1, 0, 1));
    expect(matrix.exactBy).toBe("sampled");
    expect([5, 6].map((step) => matrix.evidenceOf(1, step))).toEqual([ESTIMATED, RECORDED]);
  });
});

describe("groups in the map", () => {
  it("are named beside their ranks, and no name is drawn over another", () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 200 }), fc.integer({ min: 1, max: 9 }), (ranks, each) => {
        const matrix = new StepMatrix(1 << 16);
        for (let rank = 0; rank < ranks; rank++) matrix.set("exposed", rank, 0, 1);
        const blocks = new Map<number, string>();
        for (let at = 0; at < ranks; at += each) blocks.set(at, `host-${at}.cluster.example.org`);
        const notes = drawn(matrix, { blocks, blockKind: "host" }, 100);
        const names = notes.texts.filter((t) => t.text.startsWith("host-"));
        expect(names[0].text.startsWith("host-0")).toBe(true);
        expect(notes.texts.map((t) => t.text)).toContain("host");
        names.slice(1).forEach((t, i) => expect(t.y - names[i].y).toBeGreaterThanOrEqual(13));
        for (const t of names) expect(t.right).toBeLessThanOrEqual(100);
      }),
    );
  });
});

describe("the margins", () => {
  it("lie above the columns and right of the rows", () => {
    const g = geometry(800, 4, 40, 14);
    const shown = { from: 0, to: 40, order: [0, 1, 2, 3] };
    expect(margin(g, shown, g.left + 3.5 * g.cell, 10)).toEqual({ column: 3 });
    expect(margin(g, shown, g.left + g.width + 30, g.top + 2.5 * g.row)).toEqual({ row: 2 });
    expect(margin(g, shown, g.left + 5, g.top + 5)).toBeNull();
  });
});

describe("a text", () => {
  it("is shortened to its room and says so", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 40 }), fc.integer({ min: 6, max: 400 }), (text, wide) => {
        const pen = new Notes();
        const shown = fitted(pen, text, wide);
        expect(pen.measure(shown)).toBeLessThanOrEqual(Math.max(wide, 6));
        expect(shown === text || shown.endsWith("…")).toBe(true);
      }),
    );
  });
});
