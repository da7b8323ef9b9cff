// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import { tableFromArrays, tableToIPC, utf8 } from "@uwdata/flechette";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { unpack } from "../src/container";
import { crc32 } from "../src/crc";
import { aligned, decode, Epoch, framed, Pool } from "../src/decode";
import { Model } from "../src/model";
import { TABLES, type TableName } from "../src/tables";
import { bytes, message, model } from "./capture";

function stepsOf() {
  const { header, buffers } = message();
  const part = (header.parts as { table: string; schema: number; buffers: number[] }[]).find((p) => p.table === "steps")!;
  const schema = (header.schemas as { id: number; buffer: number }[]).find((s) => s.id === part.schema)!;
  return { schema: buffers[schema.buffer], batches: part.buffers.map((b) => buffers[b]) };
}

describe("decode", () => {
  it("reads what pyarrow wrote", () => {
    const { schema, batches } = stepsOf();
    const pool = new Pool();
    const rows = decode(schema, batches, TABLES.steps, pool, new Epoch());
    expect(rows.length).toBe(8);
    expect(new Set(rows.columns.rank.subarray(0, 8))).toEqual(new Set([0, 1, 2, 3]));
    for (let i = 0; i < 8; i++) {
      const took = rows.columns.end_ns[i] - rows.columns.start_ns[i];
      expect(took).toBeGreaterThan(80);
      expect(took).toBeLessThan(90);
      expect(pool.text(rows.columns.source[i])).toBe("profiler");
      expect(rows.columns.thread_cpu_ms[i]).toBeNaN();
    }
  });

  it("keeps nanoseconds exact however far from zero the clock is", () => {
    const epoch = new Epoch();
    const split = (ns: bigint) => [Number(BigInt.asIntN(32, ns)), Number(ns >> 32n)] as const;
    const base = 1_764_000_000_123_456_789n;
    epoch.ms(...split(base));
    fc.assert(
      fc.property(fc.bigInt(-(10n ** 15n), 10n ** 15n), (d) => {
        expect(epoch.ms(...split(base + d))).toBe(Number(d) / 1e6);
      }),
    );
  });

  it("copies what does not lie at a multiple of eight", () => {
    const whole = new Uint8Array(40).map((_, i) => i);
    const part = aligned(new DataView(whole.buffer, 3, 9));
    expect(part.byteOffset % 8).toBe(0);
    expect([...part]).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11]);
  });

  it("refuses what is cut short", () => {
    const { schema, batches } = stepsOf();
    fc.assert(
      fc.property(fc.nat(batches[0].length - 1), (length) => {
        expect(() => decode(schema, [batches[0].slice(0, length)], TABLES.steps, new Pool(), new Epoch())).toThrow();
      }),
      { numRuns: 100 },
    );
  });

  it("sees frames that would make a reader run in a circle", () => {
    const back = new Uint8Array(32);
    new DataView(back.buffer).setInt32(0, -1, true);
    new DataView(back.buffer).setInt32(4, -8, true);
    expect(framed(back)).toBe(false);
  });
});

describe("texts", () => {
  it("come back as they were written, however they repeat", () => {
    const words = fc.array(fc.option(fc.oneof(fc.constantFrom("a", "b", "Aa", "BB", "", "größe"), fc.string())), {
      minLength: 1,
      maxLength: 60,
    });
    fc.assert(
      fc.property(words, (list) => {
        const bytes = tableToIPC(tableFromArrays({ name: list }, { types: { name: utf8() } }), { format: "stream" })!;
        const [schema, batch] = messages(bytes);
        const pool = new Pool();
        const rows = decode(schema, [batch], { name: "text" }, pool, new Epoch());
        expect([...rows.columns.name].map((code) => pool.text(code))).toEqual(list);
      }),
    );
  });
});

/** The messages of an IPC stream, one by one. */
function messages(stream: Uint8Array): Uint8Array[] {
  const out: Uint8Array[] = [];
  const view = new DataView(stream.buffer, stream.byteOffset, stream.byteLength);
  for (let at = 0; at + 8 <= stream.length && view.getInt32(at + 4, true) > 0; ) {
    const head = at + 8;
    const root = head + view.getInt32(head, true);
    const table = root - view.getInt32(root, true);
    const field = view.getUint16(table, true) > 10 ? view.getUint16(table + 10, true) : 0;
    const body = field ? Number(view.getBigInt64(root + field, true)) : 0;
    const end = head + view.getInt32(at + 4, true) + body;
    out.push(stream.slice(at, end));
    at = end;
  }
  return out;
}

describe("a model", () => {
  it("counts every damaged buffer and takes no row from it, whatever the damage", () => {
    const { header, buffers } = message();
    const parts = header.parts as { table: TableName; buffers: number[] }[];
    const rows = Object.fromEntries(parts.map((p) => [p.table, model().tables[p.table].total]));
    const flip = fc.tuple(fc.nat(), fc.nat(), fc.integer({ min: 1, max: 255 }));
    fc.assert(
      fc.property(fc.nat(parts.length - 1), fc.array(flip, { minLength: 1, maxLength: 4 }), (hit, flips) => {
        const part = parts[hit];
        const damaged = new Map<number, Uint8Array>();
        for (const [which, at, by] of flips) {
          const place = part.buffers[which % part.buffers.length];
          const copy = damaged.get(place) ?? buffers[place].slice();
          copy[at % copy.length] ^= by;
          damaged.set(place, copy);
        }
        const really = [...damaged].filter(([place, copy]) => copy.some((byte, i) => byte !== buffers[place][i])).length;
        const made = new Model();
        made.ingest({ header, buffers: buffers.map((b, i) => damaged.get(i) ?? b) });
        expect(made.damaged).toBe(really);
        for (const p of parts) if (p.table !== part.table || !really) expect(made.tables[p.table].total).toBe(rows[p.table]);
        if (really) expect(made.tables[part.table].total).toBeLessThan(rows[part.table]);
      }),
      { numRuns: 60 },
    );
  });

  it("checks as zlib does", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (data) => {
        expect(crc32(data)).toBe(zlibCrc(data));
      }),
    );
  });

  it("starts anew on a reset", () => {
    const made = model();
    made.ingest(message());
    expect(made.tables.steps.total).toBe(8);
  });
});

describe("a snapshot", () => {
  it("is refused where it is cut short, at any place", () => {
    const whole = bytes();
    fc.assert(
      fc.property(fc.nat(whole.length - 1), (length) => {
        expect(() => unpack(whole.subarray(0, length))).toThrow();
      }),
      { numRuns: 60 },
    );
  });
});

/** The definition, bit by bit. */
function zlibCrc(data: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of data) {
    crc ^= byte;
    for (let k = 0; k < 8; k++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}
