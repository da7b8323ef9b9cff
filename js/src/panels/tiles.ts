// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The gradient of one parameter as a picture and a log histogram, a rank beside the other.
import { fill, h } from "../dom";
import { integer, number } from "../format";
import { type Scale, scaleOf } from "../gradientdraw";
import { type Tile, tilesOf } from "../gradientrows";
import type { Node } from "../gradients";
import { type Colors, costLookup } from "../palette";
import type { Context } from "../panel";

const MOST = 16;
const LEGEND = 96;
/** The schema's histogram: a count by floor(log10(magnitude)) from this power on, one for less before and one for more after. */
const FIRST_POWER = -12;
/** The share of the smallest cells that may lie below the scale: a few zeros by chance must not pale the rest. */
const BELOW = 0.02;

/** Shows the newest pictures, up to a step, of the chosen line's parameter; and says whether the run has any. */
export function tilesView(context: Context, root: HTMLElement, node: Node | undefined, step: number): boolean {
  const { model, theme, colors } = context;
  const some = model.tables.gradient_tiles.total > 0;
  const tiles = node?.leaf ? tilesOf(model, step, node.ids[0]) : [];
  const key = [node?.path, some, theme, ...tiles.map((t) => `${t.rank}/${t.step}`)].join();
  if (root.dataset.key === key) return some;
  root.dataset.key = key;
  const shown = tiles.slice(0, MOST);
  const [scale, powers] = [common(shown), reach(shown)];
  const figures = shown.map((t) => figure(t, scale, powers, colors));
  fill(root, h("div.dts-sub", {}, words(node, tiles)), tiles.length > 0 && legend(scale, colors), ...figures);
  return some;
}

function words(node: Node | undefined, tiles: Tile[]): string {
  if (!node?.leaf) return "Choose a parameter to see pictures of its gradient.";
  if (!tiles.length) return `${node.path}: no picture up to this step; they are taken of one parameter after the other.`;
  const few = tiles.length > MOST ? `; the first ${MOST} of ${tiles.length} ranks` : "";
  return `${node.path}, step ${integer(tiles[0].step)}: largest magnitudes; below, how many elements by power of ten, both log${few}`;
}

/** One scale for all ranks. */
function common(tiles: readonly Tile[]): Scale {
  const known = tiles.flatMap((t) => t.values.filter((v) => v > 0 && Number.isFinite(v))).sort((a, b) => a - b);
  return scaleOf(Float64Array.from(known.slice(Math.floor(BELOW * known.length))), true);
}

/** The bins [first, end) that any rank has elements in; those of zero and of what is beyond only where they are not empty. */
function reach(tiles: readonly Tile[]): [number, number] {
  const filled = (i: number) => tiles.some((t) => t.histogram[i] > 0);
  const bins = Array.from({ length: Math.max(0, ...tiles.map((t) => t.histogram.length)) }, (_, i) => i).filter(filled);
  return bins.length ? [bins[0], bins[bins.length - 1] + 1] : [0, 0];
}

function legend(scale: Scale, colors: Colors): HTMLElement {
  const canvas = h("canvas", { width: LEGEND, height: 1, "aria-hidden": "true" });
  const values = Array.from({ length: LEGEND }, (_, i) => scale.low * (scale.high / scale.low) ** (i / (LEGEND - 1)));
  paint(canvas, values, scale, colors);
  return h("div.dts-sub.dts-scale", {}, number(scale.low), canvas, `${number(scale.high)} · log`);
}

function figure(tile: Tile, scale: Scale, powers: [number, number], colors: Colors): HTMLElement {
  const canvas = h("canvas", { width: tile.width, height: tile.height, role: "img", "aria-label": `gradient of rank ${tile.rank}` });
  paint(canvas, tile.values.slice(0, tile.width * tile.height), scale, colors);
  return h("figure", {}, h("figcaption", {}, `rank ${tile.rank}`), canvas, histogram(tile, powers));
}

function paint(canvas: HTMLCanvasElement, values: readonly number[], scale: Scale, colors: Colors): void {
  const context = canvas.getContext("2d")!;
  const data = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(data.data.buffer);
  const table = costLookup(colors);
  values.forEach((v, i) => {
    pixels[i] = table[Math.round(Math.min(Math.max(scale.place(v), 0), 1) * 255)];
  });
  context.putImageData(data, 0, 0);
}

function histogram(tile: Tile, [first, end]: [number, number]): HTMLElement {
  const counts = tile.histogram.slice(first, end);
  const most = Math.log1p(Math.max(...counts, 1));
  const bars = counts.map((n, i) => {
    const title = `${power(first + i)} to ${power(first + i + 1)}: ${integer(n)}`;
    return h("i", { style: `height:${((Math.log1p(n) / most) * 100).toFixed(0)}%`, title });
  });
  const ends = h("div.dts-ends", {}, h("span", {}, power(first)), h("span", {}, power(end)));
  return h("div", {}, h("div.dts-histogram", { role: "img", "aria-label": `histogram of rank ${tile.rank}` }, ...bars), ends);
}

/** The magnitude at which a bin begins. */
function power(bin: number): string {
  const exponent = FIRST_POWER + bin - 1;
  return bin < 1 ? "0" : exponent > 4 ? "∞" : `1e${exponent}`.replace("-", "−");
}
