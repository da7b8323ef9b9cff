// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Pace } from "../src/pace";

/** Ranks that each finished `steps` steps, a rank after the other, and recorded one in `every[rank]`. */
function run(steps: number, every: readonly number[]): Pace {
  const pace = new Pace();
  every.forEach((of, rank) => {
    for (let step = 0; step < steps; step++) {
      pace.add(rank, step, 50 * step);
      if (step % of === 0) pace.tell(rank, step);
    }
  });
  return pace;
}

describe("the newest step that every rank recorded", () => {
  it("is the last of a run that is recorded whole", () => {
    expect([run(5000, [1, 1]).told, run(5000, [1, 1]).whole]).toEqual([4999, 4999]);
  });

  it("is one that the ranks sampled alike", () => {
    expect(run(401, [8, 16, 16]).told).toBe(400);
    expect(run(400, [8, 16, 16]).told).toBe(384);
  });

  it("is none where a rank recorded none, or only what is long past", () => {
    expect(run(400, [1, 1000]).told).toBeNull();
    expect(new Pace().told).toBeNull();
  });

  it("is never one that a rank lacks", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(1, 2, 4, 8, 16), { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 1, max: 600 }),
        (every, n) => {
          const largest = Math.max(...every);
          expect(run(n, every).told).toBe(Math.floor((n - 1) / largest) * largest);
        },
      ),
    );
  });
});
