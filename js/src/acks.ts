// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Which messages a page acknowledges. What a busy kernel does not hear stays in the notebook's memory, and all of it is
// work for the kernel before the next cell: so a few, then one now and then until the kernel says that it has heard.

const UNHEARD = 8;
const PROBE_MS = 15_000;

export class Acks {
  private heard = -1;
  private unheard = 0;
  private last = Number.NEGATIVE_INFINITY;

  /** Whether to acknowledge a message, which says what newest acknowledgement the kernel had heard; at a time in ms. */
  due(heard: number, now: number): boolean {
    if (heard !== this.heard) this.unheard = 0;
    this.heard = heard;
    if (this.unheard >= UNHEARD && now - this.last < PROBE_MS) return false;
    this.unheard++;
    this.last = now;
    return true;
  }
}
