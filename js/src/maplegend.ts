// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The legend of the map: the ramp with its ends and unit, the bands of the overlap ratio, what a dot means.
import { fixed, round } from "./format";
import type { Geometry, MapState } from "./mapgeometry";
import { blankEnd, cost, METRICS, strongEnd } from "./metrics";
import type { Colors } from "./palette";
import type { Pen } from "./pen";
import { css, ramp } from "./scales";

const WIDE = 96;
/** Sampled steps that are longer by less than this share are as long as others. */
const TOLD = 0.02;

export function drawLegend(pen: Pen, g: Geometry, s: MapState, colors: Colors): void {
  const right = g.left + g.width;
  const left = s.metric === "ratio" ? drawBands(pen, right, g.legend, s, colors) : drawRamp(pen, right, g.legend, s, colors);
  const by = s.matrix.exactBy;
  if (!by) return;
  const room = left - 24 - 12;
  const slower = s.longer >= TOLD ? [`exact (sampled; these steps take ${fixed(s.longer * 100, 0)} % longer)`] : [];
  const text = [...slower, by === "profiled" ? "exact (profiled)" : "exact (sampled)", "exact"].find((t) => pen.measure(t) <= room);
  if (!text) return;
  const at = left - 24 - pen.measure(text);
  pen.circle(at - 8, g.legend, 1.6, colors.quiet);
  pen.text(text, at, g.legend, { fill: colors.quiet });
}

/** Draws to the left of `right`, and returns where it begins. */
function drawRamp(pen: Pen, right: number, y: number, s: MapState, colors: Colors): number {
  const { unit, worse } = METRICS[s.metric];
  const [blank, strong] = [blankEnd(s.metric, s.range), strongEnd(s.metric, s.range)];
  const beyond = worse === "high" && s.range.largest > strong ? "+" : "";
  const high = `${round(strong)}${beyond}${unit ? ` ${unit}` : ""}`;
  const x = Math.round(right - pen.measure(high));
  pen.text(high, x, y, { fill: colors.quiet });
  for (let i = 0; i < WIDE; i += 2) {
    const value = blank + ((strong - blank) * i) / WIDE;
    // To the end, as edges between pixels would show.
    pen.rect(x - 8 - WIDE + i, y - 4, WIDE - i, 8, css(ramp(colors.cost, cost(s.metric, value, s.range))));
  }
  const low = round(blank);
  pen.text(low, x - 14 - WIDE, y, { fill: colors.quiet, align: "right" });
  return x - 14 - WIDE - pen.measure(low);
}

const BANDS = [
  [0.9, "0.8 and above", "≥ 0.8"],
  [0.6, "0.4 to 0.8", "0.4 to 0.8"],
  [0.2, "below 0.4", "< 0.4"],
] as const;

function drawBands(pen: Pen, right: number, y: number, s: MapState, colors: Colors): number {
  const words = BANDS.map(([, long, short]) => (right > 620 ? long : short));
  let x = right - words.reduce((sum, text) => sum + pen.measure(text) + 16, 14 * (words.length - 1));
  const left = x;
  BANDS.forEach(([value], i) => {
    pen.rect(x, y - 5, 10, 10, css(ramp(colors.cost, cost("ratio", value, s.range))));
    pen.text(words[i], x + 15, y, { fill: colors.quiet });
    x += pen.measure(words[i]) + 30;
  });
  return left;
}
