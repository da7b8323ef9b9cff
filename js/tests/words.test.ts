// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { detail, readFindings } from "../src/finding";
import { bytes, csvField, digitsFor, duration, fixed, integer, number, ranks, round } from "../src/format";
import { permalink, START, Trail } from "../src/history";
import { LogStore } from "../src/logs";
import { css, hex, inkOn, Linear, luminance, niceCeil, ramp, ticks } from "../src/scales";
import { stepWords } from "../src/timelinewords";
import { model } from "./capture";

describe("numbers", () => {
  it.each([
    [0, "0"],
    [26.44, "26.4"],
    [0.0123456, "0.0123"],
    [1234.5, "1\u202f235"],
    [Number.NaN, "–"],
    [-3.456, "−3.46"],
    [4.2e9, "4.2e9"],
    [Number.POSITIVE_INFINITY, "∞"],
  ])("%d as %s", (value, text) => {
    expect(number(value)).toBe(text);
  });

  it.each([
    [30, "30"],
    [0.5, "0.5"],
    [1e5, "100\u202f000"],
    [0.1 + 0.2, "0.3"],
  ])("%d on an axis as %s", (value, text) => {
    expect(round(value)).toBe(text);
  });

  it.each([
    [0, "0 ms"],
    [0.0004, "400 ns"],
    [0.25, "250 µs"],
    [85.2, "85.2 ms"],
    [12_000, "12.0 s"],
    [600_000, "10 min"],
    [9e6, "2.50 h"],
  ])("%d ms as %s", (value, text) => {
    expect(duration(value)).toBe(text);
  });

  it("show at most three digits that count", () => {
    fc.assert(
      fc.property(fc.double({ min: 0.001, max: 99.9, noNaN: true }), (v) => {
        expect(Math.abs(Number(number(v)) / v - 1)).toBeLessThanOrEqual(0.005);
      }),
    );
  });

  it("have no negative zero, and digits by the largest", () => {
    expect(fixed(-0.001, 1)).toBe("0.0");
    expect([digitsFor([0.1, 250]), digitsFor([26.4, 1]), digitsFor([0.4, Number.NaN])]).toEqual([0, 1, 2]);
    expect(integer(1234567)).toBe("1\u202f234\u202f567");
    expect([bytes(1536), bytes(125 * 2 ** 20)]).toEqual(["1.50 KiB", "125 MiB"]);
  });

  it("name ranks as people do", () => {
    expect([ranks([3, 1, 2, 0, 7]), ranks([1, 2]), ranks([])]).toEqual(["0 to 3, 7", "1, 2", ""]);
  });
});

describe("what the timeline says of a step", () => {
  const run = model();
  const rest = { shown: 4, following: false, missing: "" };

  it("is how long it took, and whether we slowed it", () => {
    const view = run.view(15)!;
    expect(stepWords(run, 15, view, { ...rest, following: true })).toBe("85.9 ms · one clock · newest");
    const slowed = { ...view, lanes: view.lanes.map((lane, i) => ({ ...lane, slowed: i === 2 })) };
    expect(stepWords(run, 15, slowed, { ...rest, shown: 2 })).toBe(
      "85.9 ms (slowed by looking) · one clock · 2 of 4 ranks, the latest first",
    );
  });

  it("is which steps there are where it is not among them", () => {
    expect(stepWords(run, 17, null, rest)).toBe("not in this run, whose steps are 14 to 15");
    expect(stepWords(run, 17, null, { ...rest, missing: "asking the kernel" })).toBe("asking the kernel");
    expect(stepWords(run, 14, null, rest)).toBe("no rank has finished this step");
  });
});

describe("CSV", () => {
  it("survives any text", () => {
    const parse = (field: string) => (field.startsWith('"') ? field.slice(1, -1).replaceAll('""', '"') : field);
    fc.assert(
      fc.property(fc.string(), (text) => {
        const field = csvField(text);
        expect(parse(field)).toBe(text.startsWith('"') && field === text ? text.slice(1, -1) : text);
        if (/[\n,]/.test(text)) expect(field.startsWith('"')).toBe(true);
      }),
    );
    expect([csvField(null), csvField(Number.NaN), csvField(3)]).toEqual(["", "", "3"]);
    expect([csvField(3.351728 - 3.35), csvField(123_456_789_012), csvField(25.687440872192383)]).toEqual([
      "0.001728",
      "123456789012",
      "25.6874409",
    ]);
  });
});

describe("scales", () => {
  it("go there and back", () => {
    fc.assert(
      fc.property(
        fc.double({ min: -1e6, max: 1e6, noNaN: true }),
        fc.double({ min: 1e-3, max: 1e6, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (from, span, t) => {
          const scale = new Linear(from, from + span, 100, 900);
          const value = from + t * span;
          expect(Math.abs(scale.back(scale.at(value)) - value)).toBeLessThan(1e-6 * (Math.abs(value) + span));
        },
      ),
    );
  });

  it("have round ticks inside their range", () => {
    fc.assert(
      fc.property(fc.double({ min: -1e5, max: 1e5, noNaN: true }), fc.double({ min: 1e-2, max: 1e5, noNaN: true }), (from, span) => {
        const list = ticks(from, from + span, 8);
        expect(list.length).toBeLessThanOrEqual(18);
        for (const t of list) expect(t >= from - span * 1e-6 && t <= from + span * (1 + 1e-6)).toBe(true);
      }),
    );
    expect(ticks(0, 90, 9)).toEqual([0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    expect([niceCeil(27), niceCeil(30), niceCeil(0.83), niceCeil(0)]).toEqual([30, 30, 1, 1]);
  });

  it("have ramps that end where their stops end, and readable ink", () => {
    const stops = ["#000000", "#ff0000", "#ffffff"];
    expect([ramp(stops, 0), ramp(stops, 0.5), ramp(stops, 1), ramp(stops, 9)]).toEqual([
      [0, 0, 0],
      [255, 0, 0],
      [255, 255, 255],
      [255, 255, 255],
    ]);
    expect(css(hex("#0a5fc0"))).toBe("rgb(10,95,192)");
    for (const color of ["#fdd49a", "#7a2d06", "#22252a", "#ffce8f"]) {
      const [a, b] = [luminance(hex(inkOn(hex(color)))), luminance(hex(color))];
      expect((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)).toBeGreaterThan(4.5);
    }
  });
});

describe("a trail of places", () => {
  it("goes back and forward, and forgets what lay ahead", () => {
    const trail = new Trail();
    trail.go({ step: 3 });
    trail.go({ rank: 1 });
    expect(trail.back()).toBe(true);
    expect(trail.here).toEqual({ ...START, step: 3 });
    expect(trail.forward() && trail.here.rank).toBe(1);
    trail.back();
    trail.go({ step: 9 });
    expect(trail.canForward).toBe(false);
    expect(trail.go({ step: 9 })).toBe(false);
  });

  it("keeps the last hundred", () => {
    const trail = new Trail();
    for (let step = 0; step < 300; step++) trail.go({ step });
    let count = 0;
    while (trail.back()) count++;
    expect(count).toBe(99);
  });

  it("can be written as Python", () => {
    expect(permalink("timeline", { ...START, rank: 2, step: 17 })).toBe('run.show("timeline", rank=2, step=17)');
  });
});

describe("logs", () => {
  it("are the same however the text was cut", () => {
    const text = "one\ntwo\r\n\u001b[31mred\u001b[0m\n10%\r50%\r100%\nlast\n";
    fc.assert(
      fc.property(fc.array(fc.nat(text.length), { maxLength: 6 }), (cuts) => {
        const places = [0, ...cuts.sort((a, b) => a - b), text.length];
        const store = new LogStore();
        for (let i = 1; i < places.length; i++) store.append(0, text.slice(places[i - 1], places[i]));
        const seen = store.lines.map((l) => l.text);
        expect(seen).toEqual(["one", "two", "red", "100%", "last"]);
      }),
    );
  });

  it("are bounded, filtered and searched", () => {
    const store = new LogStore();
    for (let i = 0; i < 6000; i++) store.append(i % 2, `line ${i}\n`);
    expect([store.lines.length, store.dropped]).toEqual([5000, 1000]);
    expect(store.select(1, "LINE 5999")).toEqual([{ rank: 1, text: "line 5999" }]);
    expect(store.select(0, "5999")).toEqual([]);
  });
});

describe("findings", () => {
  it("say who, what and since when where the kernel did not", () => {
    const [f] = readFindings([
      {
        kind: "straggler",
        cause: "compute",
        ranks: [2],
        severity: "critical",
        confidence: 0.98,
        cost_ms: 27.1,
        steps: [71, 72],
        evidence: {},
        advice: "Do less.",
      },
    ]);
    expect(f.sentence).toBe("Rank 2 is late: 27.1 ms a step by more compute, since step 71. The others wait.");
    expect(detail(f)).toBe("Do less. Confidence 0.98.");
  });

  it("survive anything", () => {
    fc.assert(
      fc.property(fc.anything(), (raw) => {
        for (const f of readFindings([raw, raw])) expect(typeof f.sentence).toBe("string");
      }),
    );
    expect(readFindings("no")).toEqual([]);
  });
});
