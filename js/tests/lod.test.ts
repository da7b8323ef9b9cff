// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { total, union } from "../src/intervals";
import { Occupancy, Pyramid, type Worse } from "../src/lod";
import { StepMatrix } from "../src/matrix";

const cells = fc.array(fc.tuple(fc.nat(6), fc.nat(200), fc.float({ min: 0, max: 100, noNaN: true })), { minLength: 1, maxLength: 150 });

describe("a pyramid", () => {
  it.each<Worse>(["high", "low"])("keeps the worst (%s) of every range, in whatever order cells come", (worse) => {
    fc.assert(
      fc.property(cells, fc.nat(200), fc.nat(200), (list, p, q) => {
        const pyramid = new Pyramid(worse);
        const plain = new Map<string, number>();
        for (const [row, column, value] of list) {
          pyramid.set(row, column, value);
          plain.set(`${row}/${column}`, Math.fround(value));
        }
        const [from, to] = [Math.min(p, q), Math.max(p, q) + 1];
        const size = 2 ** Math.floor(Math.log2(Math.max(1, to - from)));
        for (let row = 0; row < 7; row++) {
          const at = (low: number, high: number) =>
            [...plain]
              .filter(([k]) => {
                const [r, c] = k.split("/").map(Number);
                return r === row && c >= low && c < high;
              })
              .map(([, v]) => v);
          const inside = at(from, to);
          // A range is read in aligned blocks, so up to one block beyond it may count.
          const around = at(from - size + 1, to + size - 1);
          const found = pyramid.range(row, from, to);
          const pick = worse === "high" ? Math.max : Math.min;
          if (inside.length) expect(pick(found, pick(...inside))).toBe(found);
          if (Number.isNaN(found)) expect(inside).toEqual([]);
          else expect(around).toContain(found);
        }
      }),
      { numRuns: 60 },
    );
  });

  it("is the same filled at once", () => {
    const rows = 3;
    const columns = 1000;
    const values = new Float32Array(rows * columns).map((_, i) => Math.sin(i) * 10);
    const [slow, fast] = [new Pyramid("high"), new Pyramid("high")];
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) slow.set(r, c, values[r * columns + c]);
    fast.fill(rows, columns, values);
    for (const [from, to] of [
      [0, 1000],
      [3, 77],
      [512, 513],
      [990, 1000],
    ]) {
      for (let r = 0; r < rows; r++) expect(fast.range(r, from, to)).toBe(slow.range(r, from, to));
    }
  });
});

describe("a matrix of steps", () => {
  it("stays bounded and keeps the worst as it halves", () => {
    const matrix = new StepMatrix(10_000);
    for (let step = 0; step < 20_000; step++)
      for (const rank of [0, 1]) matrix.set("exposed", rank, step, step === 7777 && rank === 1 ? 99 : 1);
    expect(matrix.columns).toBeLessThanOrEqual(5000);
    expect(matrix.stride).toBe(4);
    expect(matrix.get("exposed", 1, 7777)).toBe(99);
    expect(matrix.get("exposed", 0, 7777)).toBe(1);
    expect(matrix.pyramids.exposed.range(matrix.row(1), 0, matrix.columns)).toBe(99);
  });

  it("keeps no more columns of a long run than a screen can show, but a whole run as it is", () => {
    const matrix = new StepMatrix(1 << 20);
    for (let step = 0; step < 40_000; step++) matrix.set("exposed", 0, step, step);
    expect([matrix.stride, matrix.columns]).toEqual([4, 10_000]);
    const whole = new StepMatrix(1 << 10);
    whole.load("exposed", [0], 0, 40_000, new Float32Array(40_000).fill(1));
    whole.set("exposed", 0, 39_999, 2);
    expect([whole.stride, whole.columns, whole.get("exposed", 0, 39_999)]).toEqual([1, 40_000, 2]);
  });

  it("has a range that the first step does not stretch, however few of the steps are known", () => {
    const matrix = new StepMatrix(1 << 16);
    for (let step = 0; step < 100; step++) {
      for (const rank of [0, 1]) if (step % 16 === 0) matrix.set("exposed", rank, step, step ? 20 + rank : 4200);
    }
    matrix.set("step", 0, 99, 1);
    expect(matrix.range("exposed")).toMatchObject({ high: 21, largest: 4200 });
  });

  it("does not lose a cell as ranks and steps come in any order", () => {
    fc.assert(
      fc.property(cells, (list) => {
        const matrix = new StepMatrix(1 << 20);
        const plain = new Map<string, number>();
        matrix.begin(0);
        for (const [rank, step, value] of list) {
          matrix.set("exposed", rank, step, value);
          plain.set(`${rank}/${step}`, Math.fround(value));
        }
        for (const [key, value] of plain) {
          const [rank, step] = key.split("/").map(Number);
          expect(matrix.get("exposed", rank, step)).toBe(value);
        }
      }),
    );
  });
});

describe("an occupancy", () => {
  it("holds the busy time of the lane at every level", () => {
    const starts = Array.from({ length: 20_000 }, (_, i) => i * 0.05);
    const lane = union(
      starts,
      starts.map((s, i) => s + (i % 5 ? 0.01 : 0.04)),
    );
    const occupancy = new Occupancy(lane, 0, 1000);
    for (const pixels of [100, 640, 1500]) {
      const shares = occupancy.shares(0, 1000, new Float32Array(pixels))!;
      const busy = shares.reduce((a, b) => a + b, 0) * (1000 / pixels);
      expect(Math.abs(busy / total(lane) - 1)).toBeLessThan(0.02);
    }
    expect(occupancy.shares(10, 10.01, new Float32Array(500))).toBeNull();
  });
});
