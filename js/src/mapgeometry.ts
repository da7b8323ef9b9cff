// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Where everything of the rank x step map lies, and what is under a point.
import type { Finding } from "./finding";
import { AXIS, LEFT, plotWidth } from "./margins";
import type { StepMatrix } from "./matrix";
import type { MetricName, Range } from "./metrics";

const TOP = 26;
const LEGEND = 18;
/** What the legend needs at least; with less beside the axis it gets a line of its own. */
const LEGEND_WIDE = 400;

export interface MapState {
  readonly matrix: StepMatrix;
  readonly metric: MetricName;
  readonly range: Range;
  /** Rows of the matrix from top to bottom, with the name of the block each begins, if any. */
  readonly order: readonly number[];
  readonly blocks: ReadonlyMap<number, string>;
  /** What blocks are: host or group; "" without. */
  readonly blockKind: string;
  /** Columns shown, [from, to). */
  readonly from: number;
  readonly to: number;
  readonly columnMeans: Float32Array;
  readonly rowMeans: Float32Array;
  /** StepMatrix.sampledLonger. */
  readonly longer: number;
  readonly findings: readonly Finding[];
  readonly step: number | null;
  readonly rank: number | null;
  readonly hover: { row: number; column: number } | null;
}

export interface Geometry {
  readonly left: number;
  /** Width of the names of blocks, left of the ranks' names. */
  readonly gutter: number;
  readonly top: number;
  readonly cell: number;
  readonly row: number;
  readonly width: number;
  readonly height: number;
  /** Middle lines of the axis and the legend. */
  readonly axis: number;
  readonly legend: number;
  readonly total: number;
}

/** Where everything lies for a width and number of ranks; few ranks make a strip, many a map of bounded height. */
export function geometry(width: number, ranks: number, columns: number, widest: number, gutter = 0): Geometry {
  const plot = plotWidth(width, gutter);
  const row = ranks <= 8 ? 22 : ranks <= 24 ? 15 : Math.max(0.25, Math.min(10, 420 / ranks));
  const height = Math.max(22, Math.round(row * ranks));
  const cell = Math.min(widest, plot / Math.max(1, columns));
  const beside = plot - cell * columns >= LEGEND_WIDE;
  const axis = TOP + height + 13;
  return {
    left: LEFT + gutter,
    gutter,
    top: TOP,
    row,
    height,
    width: plot,
    axis,
    legend: beside ? axis : axis + LEGEND,
    total: TOP + height + AXIS + (beside ? 0 : LEGEND),
    cell,
  };
}

type Shown = Pick<MapState, "from" | "to" | "order">;

/** The row (place in the order) and column under a point; null outside. */
export function hit(g: Geometry, state: Shown, x: number, y: number): { row: number; column: number } | null {
  const row = Math.floor((y - g.top) / g.row);
  const column = state.from + Math.floor((x - g.left) / g.cell);
  if (row < 0 || row >= state.order.length || x < g.left || column >= state.to || column < state.from) return null;
  return { row, column };
}

/** The column whose bar, or the row whose mean, is under a point; null elsewhere. */
export function margin(g: Geometry, state: Shown, x: number, y: number): { column: number } | { row: number } | null {
  if (y < g.top - 2) {
    const column = state.from + Math.floor((x - g.left) / g.cell);
    return x >= g.left && column < state.to ? { column } : null;
  }
  const row = Math.floor((y - g.top) / g.row);
  return x > g.left + g.width && row >= 0 && row < state.order.length ? { row } : null;
}
