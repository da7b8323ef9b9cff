// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Lines of the ranks' logs in the order in which they came; the oldest make place.

export interface Line {
  readonly rank: number;
  readonly text: string;
}

const MAX_LINES = 5000;
// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal escapes are control characters
const ESCAPES = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g;

export class LogStore {
  readonly lines: Line[] = [];
  dropped = 0;
  version = 0;
  private readonly rest = new Map<number, string>();

  /** Adds text of a rank; a line without its end waits for it, a carriage return overwrites. */
  append(rank: number, text: string): void {
    const parts = ((this.rest.get(rank) ?? "") + text).replace(ESCAPES, "").split(/\r?\n/);
    this.rest.set(rank, (parts.pop() ?? "").slice(-10_000));
    for (const part of parts) this.lines.push({ rank, text: part.slice(part.lastIndexOf("\r") + 1) });
    const excess = this.lines.length - MAX_LINES;
    if (excess > 0) {
      this.lines.splice(0, excess);
      this.dropped += excess;
    }
    if (parts.length) this.version++;
  }

  /** Lines of one rank or all, that hold every word of the search, newest last. */
  select(rank: number | null, search: string): Line[] {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return this.lines.filter((l) => (rank === null || l.rank === rank) && words.every((w) => l.text.toLowerCase().includes(w)));
  }
}
