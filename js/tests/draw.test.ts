// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { drawGradients, gradientHeight } from "../src/gradientdraw";
import { linesBy } from "../src/gradients";
import { colorsOf } from "../src/palette";
import { costliest, drawTimeline, type Layout, layout, minimapTime, type TimelineState } from "../src/timelinedraw";
import { model } from "./capture";
import { Notes } from "./notes";

const colors = colorsOf("light");
const view = model().view(15)!;

function timeline(width: number, more: Partial<TimelineState> = {}): { notes: Notes; l: Layout } {
  const notes = new Notes();
  const l = layout(width, view, view.lanes, new Set());
  const state: TimelineState = {
    view,
    from: view.start,
    to: view.end,
    rank: null,
    chosen: costliest(view),
    measure: null,
    search: "",
    uncertainty: 0,
    ...more,
  };
  drawTimeline(notes, l, state, colors);
  return { notes, l };
}

describe("the time axis", () => {
  it("has no number on another or on its unit, whatever is shown at whatever width", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 320, max: 3800 }),
        fc.double({ min: 0, max: 0.9, noNaN: true }),
        fc.double({ min: 1e-4, max: 1, noNaN: true }),
        (width, begin, share) => {
          const [from, long] = [view.start + begin * (view.end - view.start), share * (view.end - view.start)];
          const { notes, l } = timeline(width, { from, to: from + long, chosen: null });
          const axis = notes.texts.filter((t) => t.y > l.axis && t.text !== "exposed").sort((a, b) => a.left - b.left);
          expect(axis.some((t) => t.text === "ms" || t.text === "µs")).toBe(true);
          axis.slice(1).forEach((t, i) => expect(t.left).toBeGreaterThan(axis[i].right));
        },
      ),
    );
  });
});

describe("the thread through a collective", () => {
  it("marks the late rank, and how sure its time is", () => {
    const late = (t: { text: string }) => t.text.startsWith("last by");
    expect(timeline(1000).notes.texts.find(late)!.text).toBe("last by 27.2 ms");
    const unsure = timeline(1000, { uncertainty: 0.5 });
    expect(unsure.notes.texts.find(late)!.text).toBe("last by 27.2 ms ± 500 µs");
    // A bar with an end on each side for each rank.
    expect(unsure.notes.lines - timeline(1000).notes.lines).toBe(3 * view.lanes.length);
    expect(timeline(1000, { uncertainty: 0.004 }).notes.lines).toBe(timeline(1000).notes.lines);
  });
});

describe("the minimap", () => {
  it("tells the time under a point, only within it", () => {
    const { l } = timeline(1000);
    expect(minimapTime(l, view, 84 + l.plot / 2, l.total - 4)).toBeCloseTo((view.start + view.end) / 2, 6);
    expect(minimapTime(l, view, 84 + l.plot / 2, l.axis - 10)).toBeNull();
    expect(minimapTime(l, view, 10, l.total - 4)).toBeNull();
  });
});

describe("the gradient map", () => {
  it("keeps every text within the picture and off the others", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 64 }),
        fc.integer({ min: 360, max: 2000 }),
        fc.integer({ min: 1, max: 30 }),
        (ranks, width, n) => {
          const parameters = Array.from({ length: n }, (_, id) => ({
            id,
            name: `blocks.${id}.a_rather_long_name_of_a_module.weight`,
            shape: "",
            bucket: 0,
            elements: 1,
            module: "",
          }));
          const nodes = linesBy(parameters, "parameter");
          const notes = new Notes();
          const values = new Float64Array(n * ranks).map((_, i) => 10 ** ((i % 7) - 3));
          const state = {
            nodes,
            folded: new Set<string>(),
            ranks: Array.from({ length: ranks }, (_, r) => r),
            values,
            metric: "local" as const,
            line: 0,
            rank: 1,
          };
          drawGradients(notes, width, state, colors);
          for (const t of notes.texts) {
            expect(t.left).toBeGreaterThanOrEqual(0);
            expect(t.y).toBeLessThan(gradientHeight(n));
          }
          const heads = notes.texts.filter((t) => t.text.startsWith("rank ")).sort((a, b) => a.left - b.left);
          heads.slice(1).forEach((t, i) => expect(t.left).toBeGreaterThanOrEqual(heads[i].right));
        },
      ),
    );
  });
});
