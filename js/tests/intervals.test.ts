// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { clip, difference, firstAfter, type Intervals, intersection, total, union } from "../src/intervals";

const SIZE = 40;
const raw = fc.array(fc.tuple(fc.integer({ min: 0, max: SIZE }), fc.integer({ min: -3, max: 10 })), { maxLength: 15 });
const set = raw.map((list) =>
  union(
    list.map(([s]) => s),
    list.map(([s, d]) => Math.min(SIZE, s + d)),
  ),
);

/** The set as one bit a unit: the plain definition to compare with. */
function bits(a: Intervals): boolean[] {
  return Array.from({ length: SIZE }, (_, i) => {
    for (let k = 0; k < a.length; k += 2) if (a[k] <= i && i < a[k + 1]) return true;
    return false;
  });
}

function wellFormed(a: Intervals): void {
  for (let i = 0; i < a.length; i += 2) {
    expect(a[i + 1]).toBeGreaterThan(a[i]);
    if (i) expect(a[i]).toBeGreaterThanOrEqual(a[i - 1]);
  }
}

describe("sets of intervals", () => {
  it("agree with sets of units", () => {
    fc.assert(
      fc.property(set, set, (a, b) => {
        const [x, y] = [bits(a), bits(b)];
        for (const made of [intersection(a, b), difference(a, b)]) wellFormed(made);
        expect(bits(intersection(a, b))).toEqual(x.map((v, i) => v && y[i]));
        expect(bits(difference(a, b))).toEqual(x.map((v, i) => v && !y[i]));
        expect(total(a)).toBe(x.filter(Boolean).length);
        expect(total(intersection(a, b)) + total(difference(a, b))).toBe(total(a));
      }),
    );
  });

  it("clip to a range", () => {
    fc.assert(
      fc.property(set, fc.nat(SIZE), fc.nat(SIZE), (a, p, q) => {
        const [from, to] = [Math.min(p, q), Math.max(p, q)];
        expect(bits(clip(a, from, to))).toEqual(bits(a).map((v, i) => v && from <= i && i < to));
      }),
    );
  });

  it("find the first that ends after a time", () => {
    fc.assert(
      fc.property(set, fc.nat(SIZE), (a, at) => {
        let plain = 0;
        while (plain < a.length && a[plain + 1] <= at) plain += 2;
        expect(firstAfter(a, at)).toBe(plain);
      }),
    );
  });

  it("take unknown times for nothing", () => {
    expect([...union([Number.NaN, 1, 2], [3, Number.NaN, 4])]).toEqual([2, 4]);
  });
});
