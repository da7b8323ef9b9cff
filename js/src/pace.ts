// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// How far each rank has come, and how fast the leading one goes.

const WINDOW_MS = 5000;

export class Pace {
  private readonly last = new Map<number, number>();
  private readonly ends: { step: number; end: number }[] = [];

  /** A rank has finished a step, at a time in ms. */
  add(rank: number, step: number, end: number): void {
    if (step >= (this.last.get(rank) ?? -1)) this.last.set(rank, step);
    if (step > (this.ends.at(-1)?.step ?? -1)) this.ends.push({ step, end });
  }

  /** Forgets what is too old to tell the rate. */
  trim(): void {
    const newest = this.ends.at(-1)?.end ?? 0;
    while (this.ends.length > 2 && this.ends[0].end < newest - WINDOW_MS) this.ends.shift();
  }

  /** Newest step that every rank seen has finished; null before that. */
  get whole(): number | null {
    let step: number | null = null;
    for (const s of this.last.values()) step = step === null ? s : Math.min(step, s);
    return step;
  }

  /** Steps per second of the leading rank over its last 5 s of training; NaN where unknown. */
  get stepsPerSecond(): number {
    const from = this.ends[0];
    const to = this.ends.at(-1);
    return from && to && to.end > from.end ? ((to.step - from.step) / (to.end - from.end)) * 1000 : Number.NaN;
  }
}
