// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The gradient of one parameter as a picture and a log histogram, a rank beside the other.
import { fill, h } from "../dom";
import type { Node } from "../gradients";
import type { Tile } from "../model";
import { type Colors, costLookup } from "../palette";
import type { Context } from "../panel";

/** Shows the tiles of the chosen line's parameter; hides itself where there are none. */
export function tilesView(context: Context, root: HTMLElement, node: Node | undefined, step: number, colors: Colors): void {
  const { model } = context;
  const at = node?.leaf ? model.stepWith("gradient_tiles", step) : null;
  const tiles = at === null || !node ? [] : model.tiles(at, node.ids[0]);
  const key = [node?.path, at, tiles.length, context.theme].join();
  root.hidden = !tiles.length;
  if (root.dataset.key === key) return;
  root.dataset.key = key;
  const largest = Math.max(...tiles.flatMap((t) => t.values.filter(Number.isFinite)), 0);
  fill(
    root,
    tiles.length > 0 &&
      h("div.dts-sub", {}, `${node!.path}, largest magnitudes, log scale, step ${at}; below: elements by power of ten, 1e−12 to 1e3`),
    ...tiles.slice(0, 16).map((t) => h("figure", {}, picture(t, largest, colors), histogram(t), h("figcaption", {}, `rank ${t.rank}`))),
  );
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
