// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// How far each rank has come, and how fast the leading one goes.

const WINDOW_MS = 5000;
/** Newest steps of which it is kept who recorded them. */
const MOST_TOLD = 64;

export class Pace {
  private readonly last = new Map<number, number>();
  private readonly tellers = new Map<number, Set<number>>();
  private readonly ends: { step: number; end: number }[] = [];

  /** A rank has finished a step, at a time in ms. */
  add(rank: number, step: number, end: number): void {
    if (step >= (this.last.get(rank) ?? -1)) this.last.set(rank, step);
    if (step > (this.ends.at(-1)?.step ?? -1)) this.ends.push({ step, end });
  }

  /** A rank has recorded the collectives of a step, not only its own times. */
  tell(rank: number, step: number): void {
    const known = this.tellers.get(step);
    if (known) known.add(rank);
    else if (this.tellers.size < MOST_TOLD) this.tellers.set(step, new Set([rank]));
    else {
      const oldest = Math.min(...this.tellers.keys());
      if (step < oldest) return;
      this.tellers.delete(oldest);
      this.tellers.set(step, new Set([rank]));
    }
  }

  /** Newest step of which every rank seen has recorded the collectives; null where there is none. */
  get told(): number | null {
    let step: number | null = null;
    for (const [s, ranks] of this.tellers) if (ranks.size === this.last.size && s > (step ?? -1)) step = s;
    return step;
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
