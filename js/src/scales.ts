// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Linear and logarithmic scales, round ticks, colour ramps.

export type Rgb = readonly [number, number, number];

/** Maps [from, to] onto [low, high] and back. */
export class Linear {
  constructor(
    readonly from: number,
    readonly to: number,
    readonly low: number,
    readonly high: number,
  ) {}

  at(value: number): number {
    const span = this.to - this.from || 1;
    return this.low + ((value - this.from) / span) * (this.high - this.low);
  }

  back(pixel: number): number {
    const span = this.high - this.low || 1;
    return this.from + ((pixel - this.low) / span) * (this.to - this.from);
  }
}

/** Step of 1, 2 or 5 times a power of ten, so that about `count` ticks fit. */
export function tickStep(span: number, count: number): number {
  if (!(span > 0) || count < 1) return 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const rest = raw / power;
  return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

/** Round values in [from, to], about `count` of them. */
export function ticks(from: number, to: number, count: number): number[] {
  const step = tickStep(to - from, count);
  const out: number[] = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9 && out.length < 1000; i++) {
    out.push(Number((i * step).toPrecision(12)));
  }
  return out;
}

/** A round number at or above: 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten. */
export function niceCeil(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const rest = value / power;
  const nice = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((n) => rest <= n * (1 + 1e-9)) ?? 10;
  return Number((nice * power).toPrecision(6));
}

export function hex(color: string): Rgb {
  const n = Number.parseInt(color.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

/** Colour at `t` in [0, 1] of evenly spaced stops. */
export function ramp(stops: readonly string[], t: number): Rgb {
  const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const [a, b] = [hex(stops[i]), hex(stops[i + 1])];
  const f = place - i;
  return [0, 1, 2].map((c) => Math.round(a[c] + (b[c] - a[c]) * f)) as unknown as Rgb;
}

export function css(color: Rgb): string {
  return `rgb(${color[0]},${color[1]},${color[2]})`;
}

/** 256 opaque pixels of the ramp, as ImageData stores them (little endian RGBA). */
export function lookup(stops: readonly string[]): Uint32Array {
  const out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const [r, g, b] = ramp(stops, i / 255);
    out[i] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return out;
}

/** Relative luminance of WCAG 2, 0 to 1. */
export function luminance(color: Rgb): number {
  const [r, g, b] = color.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Whichever of dark and light ink stands out more on the colour. */
export function inkOn(color: Rgb): string {
  return luminance(color) > 0.2 ? "#16191d" : "#ffffff";
}
