// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Steps whose rows are not in the page are asked of the kernel. A busy kernel may hear it late, one that is gone never.
import { integer } from "./format";

const BUSY_MS = 1500;
const LIMIT_MS = 60_000;

export class Fetching {
  private readonly asked = new Map<number, number>();
  private readonly had = new Set<number>();

  /** `send` asks the kernel for a step; null on a page that has none. */
  constructor(
    private readonly send: ((step: number) => void) | null,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Asks for a step, once until its time is over. */
  want(step: number): void {
    if (!this.send || this.asked.has(step) || this.had.has(step)) return;
    this.asked.set(step, this.now());
    this.send(step);
  }

  /** Asks anew for a step whose time is over. */
  retry(step: number): void {
    if (this.now() - (this.asked.get(step) ?? 0) >= LIMIT_MS) this.asked.delete(step);
  }

  arrived(step: number): void {
    this.asked.delete(step);
    this.had.add(step);
  }

  /** Everything came anew: nothing fetched is left. */
  forget(): void {
    this.asked.clear();
    this.had.clear();
  }

  /** How it stands with a step that the page lacks, in words. */
  words(step: number, gone: boolean): string {
    if (!this.send) return "this page does not hold its rows; run.show in a notebook reads them";
    if (this.had.has(step)) return "the run directory holds no more of it";
    if (gone) return "its rows are not in the page, and the kernel is gone; the run directory has them";
    const since = this.now() - (this.asked.get(step) ?? this.now());
    if (since < BUSY_MS) return "not in the page any more; asking the kernel";
    if (since < LIMIT_MS) return "the kernel is busy; its rows will be fetched when it answers";
    return `the kernel has not answered for ${integer(LIMIT_MS / 1000)} s; choose the step again to ask anew`;
  }

  /** Whether the words may change by themselves. */
  get pending(): boolean {
    return this.asked.size > 0;
  }
}
