// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { Acks } from "../src/acks";

/** Acknowledgements of messages from one frame to another, ten a second; the kernel hears each after `late` messages, or none. */
function sent(acks: Acks, from: number, to: number, late: number | null, before = -1): number[] {
  const out: number[] = [];
  let heard = before;
  for (let frame = from; frame < to; frame++) {
    if (late !== null) heard = out.filter((ack) => ack <= frame - late).at(-1) ?? heard;
    if (acks.due(heard, 100 * frame)) out.push(frame);
  }
  return out;
}

describe("acknowledgements", () => {
  it("are sent for each message that a kernel hears, also over a slow link", () => {
    for (const late of [1, 4]) expect(sent(new Acks(), 0, 500, late)).toHaveLength(500);
  });

  it("are few while it hears none: two hours leave hundreds, not tens of thousands", () => {
    const all = sent(new Acks(), 0, 72_000, null);
    expect(all.slice(0, 8)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(all.length).toBeLessThan(500);
    expect(all[9] - all[8]).toBe(150);
  });

  it("go on as soon as it hears again", () => {
    const acks = new Acks();
    const busy = sent(acks, 0, 1000, null);
    expect(sent(acks, 1000, 1100, 1, busy.at(-1))).toHaveLength(100);
  });
});
