// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Arrow IPC messages to columns. Input is one schema message and record batches, each a buffer of its own.
import { tableFromIPC } from "@uwdata/flechette";
import type { Kind, Spec } from "./tables";

export type Numbers = Float64Array | Int32Array | Uint8Array;
export type Cell = number[] | null;

/** Decoded rows: null is NaN in reals and times, -1 in i32 and text codes, 255 in flags. */
export interface Rows {
  readonly length: number;
  readonly columns: Record<string, Numbers>;
  readonly lists: Record<string, Cell[]>;
}

/** Texts by code; codes stay valid for the life of the pool. */
export class Pool {
  readonly texts: string[] = [];
  private readonly codes = new Map<string, number>();

  code(text: string): number {
    let code = this.codes.get(text);
    if (code === undefined) {
      code = this.texts.length;
      this.texts.push(text);
      this.codes.set(text, code);
    }
    return code;
  }

  text(code: number): string | null {
    return code < 0 ? null : (this.texts[code] ?? null);
  }
}

/** A zero of time, in two exact halves of nanoseconds; set by the first time seen. */
export class Epoch {
  private high: number | null = null;
  private low = 0;

  /** Milliseconds since the epoch of an int64 given as two 32-bit words. */
  ms(low: number, high: number): number {
    if (this.high === null) {
      this.high = high;
      this.low = low >>> 0;
    }
    return ((high - this.high) * 4294967296 + ((low >>> 0) - this.low)) / 1e6;
  }

  /** The epoch as Unix milliseconds, NaN before any time. */
  get unixMs(): number {
    return this.high === null ? Number.NaN : (this.high * 4294967296 + this.low) / 1e6;
  }
}

interface Batch {
  length: number;
  nullCount: number;
  validity?: Uint8Array;
  values: ArrayBufferView & { length: number };
  offsets?: Int32Array;
  children?: Batch[];
}

const MAX_ROWS = 8_000_000;
const utf8 = new TextDecoder();

/** Whether the buffer is one whole, framed IPC message. flechette may loop on others. */
export function framed(buffer: Uint8Array): boolean {
  if (buffer.length < 16) return false;
  const view = new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  const head = view.getInt32(4, true);
  return view.getInt32(0, true) === -1 && head > 0 && head % 4 === 0 && head + 8 <= buffer.length;
}

/** A copy that starts at a multiple of 8, as typed arrays over it need. */
export function aligned(view: DataView | Uint8Array): Uint8Array {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  return bytes.byteOffset % 8 ? bytes.slice() : bytes;
}

/** Decodes the batches; Error where they don't fit the schema or are damaged. */
export function decode(schema: Uint8Array, batches: Uint8Array[], spec: Spec, pool: Pool, epoch: Epoch): Rows {
  const messages = [schema, ...batches];
  if (!messages.every(framed)) throw new Error("not a whole Arrow message");
  const table = tableFromIPC(messages, { useBigInt: true });
  const length = table.numRows;
  if (!(length >= 0 && length <= MAX_ROWS)) throw new Error(`${length} rows in one message`);
  const columns: Record<string, Numbers> = {};
  const lists: Record<string, Cell[]> = {};
  for (const [name, kind] of Object.entries(spec)) {
    const parts = (table.getChild(name)?.data ?? []) as unknown as Batch[];
    if (kind === "list") lists[name] = listColumn(parts, length);
    else columns[name] = column(parts, length, kind, pool, epoch);
  }
  return { length, columns, lists };
}

/** An empty column of a kind: nulls only. */
export function blank(kind: Kind, length: number): Numbers {
  if (kind === "real" || kind === "time") return new Float64Array(length).fill(Number.NaN);
  return kind === "flag" ? new Uint8Array(length).fill(255) : new Int32Array(length).fill(-1);
}

function column(parts: Batch[], length: number, kind: Kind, pool: Pool, epoch: Epoch): Numbers {
  const out = blank(kind, length);
  let at = 0;
  for (const part of parts) {
    const rows = Math.min(part.length, length - at);
    if (kind === "text") texts(part, rows, out as Int32Array, at, pool);
    else numbers(part, rows, out, at, kind, epoch);
    at += rows;
  }
  return out;
}

function valid(part: Batch, row: number): boolean {
  if (!part.nullCount || !part.validity?.length) return true;
  return ((part.validity[row >> 3] >> (row & 7)) & 1) === 1;
}

function numbers(part: Batch, rows: number, out: Numbers, at: number, kind: Kind, epoch: Epoch): void {
  const values = part.values;
  if (kind === "flag") {
    const bits = values as Uint8Array;
    for (let i = 0; i < rows; i++) if (valid(part, i)) out[at + i] = (bits[i >> 3] >> (i & 7)) & 1;
    return;
  }
  if (values instanceof BigInt64Array) {
    const words = new Int32Array(values.buffer, values.byteOffset, values.length * 2);
    const time = kind === "time";
    for (let i = 0; i < Math.min(rows, values.length); i++) {
      if (!valid(part, i)) continue;
      const low = words[2 * i];
      const high = words[2 * i + 1];
      out[at + i] = time ? epoch.ms(low, high) : high * 4294967296 + (low >>> 0);
    }
    return;
  }
  const plain = values as unknown as Float64Array;
  for (let i = 0; i < Math.min(rows, plain.length); i++) if (valid(part, i)) out[at + i] = plain[i];
}

function texts(part: Batch, rows: number, out: Int32Array, at: number, pool: Pool): void {
  const offsets = part.offsets;
  if (!offsets) throw new Error("a text column of another type");
  const bytes = part.values as Uint8Array;
  // Where a text was first seen in this message, by a hash of its bytes: comparing is much cheaper than decoding.
  const seen = new Map<number, { from: number; to: number; code: number }>();
  for (let i = 0; i < Math.min(rows, offsets.length - 1); i++) {
    if (!valid(part, i)) continue;
    const [from, to] = [offsets[i], offsets[i + 1]];
    let hash = to - from;
    for (let k = from; k < to; k++) hash = (Math.imul(hash, 31) + bytes[k]) | 0;
    const known = seen.get(hash);
    if (known && same(bytes, known.from, known.to, from, to)) {
      out[at + i] = known.code;
      continue;
    }
    const code = pool.code(utf8.decode(bytes.subarray(from, to)));
    seen.set(hash, { from, to, code });
    out[at + i] = code;
  }
}

/** Equal bytes in both ranges. */
function same(bytes: Uint8Array, a: number, aEnd: number, b: number, bEnd: number): boolean {
  if (aEnd - a !== bEnd - b) return false;
  for (let i = 0; i < bEnd - b; i++) if (bytes[a + i] !== bytes[b + i]) return false;
  return true;
}

function listColumn(parts: Batch[], length: number): Cell[] {
  const out: Cell[] = new Array(length).fill(null);
  let at = 0;
  for (const part of parts) {
    const { offsets } = part;
    const values = part.children?.[0]?.values as unknown as ArrayLike<number | bigint> | undefined;
    for (let i = 0; offsets && values && i < Math.min(part.length, offsets.length - 1, length - at); i++) {
      if (!valid(part, i)) continue;
      const end = Math.min(offsets[i + 1], values.length);
      const cell: number[] = [];
      for (let k = Math.max(offsets[i], 0); k < end; k++) cell.push(Number(values[k]));
      out[at + i] = cell;
    }
    at += part.length;
  }
  return out;
}
