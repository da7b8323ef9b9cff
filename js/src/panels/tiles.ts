// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The gradient of one parameter as a picture and a log histogram, a rank beside the other.
import { fill, h } from "../dom";
import { integer } from "../format";
import { type Tile, tilesOf } from "../gradientrows";
import type { Node } from "../gradients";
import { type Colors, costLookup } from "../palette";
import type { Context } from "../panel";

const MOST = 16;

/** Shows the newest pictures, up to a step, of the chosen line's parameter; and says whether the run has any. */
export function tilesView(context: Context, root: HTMLElement, node: Node | undefined, step: number): boolean {
  const { model, theme, colors } = context;
  const some = model.tables.gradient_tiles.total > 0;
  const tiles = node?.leaf ? tilesOf(model, step, node.ids[0]) : [];
  const key = [node?.path, some, theme, ...tiles.map((t) => `${t.rank}/${t.step}`)].join();
  if (root.dataset.key === key) return some;
  root.dataset.key = key;
  const largest = Math.max(...tiles.flatMap((t) => t.values.filter(Number.isFinite)), 0);
  fill(root, h("div.dts-sub", {}, words(node, tiles)), ...tiles.slice(0, MOST).map((t) => figure(t, largest, colors)));
  return some;
}

function words(node: Node | undefined, tiles: Tile[]): string {
  if (!node?.leaf) return "Choose a parameter to see pictures of its gradient.";
  if (!tiles.length) return `${node.path}: no picture up to this step; they are taken of one parameter after the other.`;
  const few = tiles.length > MOST ? `; the first ${MOST} of ${tiles.length} ranks` : "";
  return `${node.path}, step ${integer(tiles[0].step)}: largest magnitudes, log scale; below: elements by power of ten, 1e−12 to 1e3${few}`;
}

function figure(tile: Tile, largest: number, colors: Colors): HTMLElement {
  return h("figure", {}, picture(tile, largest, colors), histogram(tile), h("figcaption", {}, `rank ${tile.rank}`));
}

function picture(tile: Tile, largest: number, colors: Colors): HTMLCanvasElement {
  const canvas = h("canvas", { width: tile.width, height: tile.height, role: "img", "aria-label": `gradient of rank ${tile.rank}` });
  const context = canvas.getContext("2d")!;
  const data = context.createImageData(tile.width, tile.height);
  const pixels = new Uint32Array(data.data.buffer);
  const table = costLookup(colors);
  tile.values.slice(0, pixels.length).forEach((v, i) => {
    const t = !Number.isFinite(v) ? 1 : v > 0 && largest > 0 ? Math.max(0, 1 + Math.log10(v / largest) / 4) : 0;
    pixels[i] = table[Math.round(t * 255)];
  });
  context.putImageData(data, 0, 0);
  return canvas;
}

function histogram(tile: Tile): HTMLElement {
  const most = Math.log1p(Math.max(...tile.histogram, 1));
  const bars = tile.histogram.map((n) => h("i", { style: `height:${((Math.log1p(n) / most) * 100).toFixed(0)}%` }));
  return h("div.dts-histogram", { role: "img", "aria-label": `histogram of rank ${tile.rank}` }, ...bars);
}
