// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Sets of half-open intervals as flat arrays [start, end, start, end, ...], sorted, disjoint, none empty.

export type Intervals = Float64Array;
export const NONE: Intervals = new Float64Array(0);

/** The set covered by any of the intervals; empty, negative and NaN ones count for nothing. */
export function union(starts: ArrayLike<number>, ends: ArrayLike<number>): Intervals {
  const kept: number[] = [];
  let sorted = true;
  for (let i = 0; i < starts.length; i++) {
    if (!(ends[i] > starts[i])) continue;
    if (kept.length && starts[i] < starts[kept[kept.length - 1]]) sorted = false;
    kept.push(i);
  }
  if (!sorted) kept.sort((a, b) => starts[a] - starts[b]);
  const out: number[] = [];
  for (const i of kept) {
    const last = out.length - 1;
    if (last > 0 && starts[i] <= out[last]) out[last] = Math.max(out[last], ends[i]);
    else out.push(starts[i], ends[i]);
  }
  return Float64Array.from(out);
}

export function total(a: Intervals): number {
  let sum = 0;
  for (let i = 0; i < a.length; i += 2) sum += a[i + 1] - a[i];
  return sum;
}

/** What both sets cover. */
export function intersection(a: Intervals, b: Intervals): Intervals {
  const out: number[] = [];
  for (let i = 0, k = 0; i < a.length && k < b.length; ) {
    const start = Math.max(a[i], b[k]);
    const end = Math.min(a[i + 1], b[k + 1]);
    if (end > start) out.push(start, end);
    if (a[i + 1] < b[k + 1]) i += 2;
    else k += 2;
  }
  return Float64Array.from(out);
}

/** What `a` covers and `b` does not. */
export function difference(a: Intervals, b: Intervals): Intervals {
  const out: number[] = [];
  let k = 0;
  for (let i = 0; i < a.length; i += 2) {
    let start = a[i];
    while (k < b.length && b[k + 1] <= start) k += 2;
    for (let m = k; m < b.length && b[m] < a[i + 1]; m += 2) {
      if (b[m] > start) out.push(start, b[m]);
      start = Math.max(start, b[m + 1]);
    }
    if (start < a[i + 1]) out.push(start, a[i + 1]);
  }
  return Float64Array.from(out);
}

/** The part of a set within [start, end). */
export function clip(a: Intervals, start: number, end: number): Intervals {
  return intersection(a, Float64Array.of(start, end));
}

/** Index of the first interval (its start's place in the array) that ends after `at`; a.length where none does. */
export function firstAfter(a: Intervals, at: number): number {
  let low = 0;
  let high = a.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (a[2 * middle + 1] > at) high = middle;
    else low = middle + 1;
  }
  return 2 * low;
}
