// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What map and timeline leave free around their plots, alike, so that they stand under each other.

/** For the names of ranks. */
export const LEFT = 84;
/** For the numbers of ranks. */
export const RIGHT = 62;
/** Height of an axis. */
export const AXIS = 24;

/** Width of the plot in a picture, also where there is hardly any room. */
export function plotWidth(width: number, gutter = 0): number {
  return Math.max(60, width - LEFT - RIGHT - gutter);
}
