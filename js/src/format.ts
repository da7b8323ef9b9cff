// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Numbers as text: at most three significant digits, units apart.

const NARROW = "\u202f";

/** Three significant digits, no exponent between 0.001 and 10 million, thousands apart. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e7 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace("-", "−");
  const text = size >= 100 ? Math.round(value).toString() : value.toPrecision(3);
  return group(text).replace("-", "−");
}

/** A round value, as on an axis: no more digits than it has, at most three. */
export function round(value: number): string {
  if (!Number.isFinite(value) || Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-3)) return number(value);
  return group(Number(value.toPrecision(3)).toString()).replace("-", "−");
}

/** A whole number, thousands apart. */
export function integer(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return group(Math.round(value).toString()).replace("-", "−");
}

/** Fixed digits, for columns whose points should stand under each other. */
export function fixed(value: number | null | undefined, digits: number): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = value.toFixed(digits);
  return group(Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** Digits after the point so that the largest of the values shows three significant digits, at most 2. */
export function digitsFor(values: Iterable<number>): number {
  let largest = 0;
  for (const v of values) if (Number.isFinite(v)) largest = Math.max(largest, Math.abs(v));
  return largest >= 100 ? 0 : largest >= 10 ? 1 : 2;
}

/** A duration given in ms, with the unit that suits it. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  const size = Math.abs(ms);
  if (size === 0) return "0 ms";
  if (size < 1e-3) return `${number(ms * 1e6)} ns`;
  if (size < 1) return `${number(ms * 1e3)} µs`;
  if (size < 1e3) return `${number(ms)} ms`;
  if (size < 120e3) return `${number(ms / 1e3)} s`;
  const minutes = Math.round(ms / 60e3);
  return minutes < 120 ? `${minutes} min` : `${number(ms / 3.6e6)} h`;
}

/** Bytes with binary units. */
export function bytes(count: number): string {
  if (!Number.isFinite(count)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  let value = count;
  while (Math.abs(value) >= 1024 && i < units.length - 1) {
    value /= 1024;
    i++;
  }
  return `${number(value)} ${units[i]}`;
}

/** One, or many. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${integer(count)} ${count === 1 ? one : many}`;
}

/** Ranks as people write them: 0 to 3, 5. */
export function ranks(list: readonly number[]): string {
  const sorted = [...new Set(list)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let k = i;
    while (sorted[k + 1] === sorted[k] + 1) k++;
    if (k - i >= 2) parts.push(`${sorted[i]} to ${sorted[k]}`);
    else for (let m = i; m <= k; m++) parts.push(String(sorted[m]));
    i = k + 1;
  }
  return parts.join(", ");
}

/** A field for CSV, quoted where it must be. */
export function csvField(value: string | number | null | undefined): string {
  if (value === null || value === undefined || (typeof value === "number" && Number.isNaN(value))) return "";
  // Sums of times leave digits behind that mean nothing.
  const text = typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(9))) : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function group(text: string): string {
  const [whole, rest] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, NARROW);
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}
