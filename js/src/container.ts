// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// One byte string that holds a JSON header and buffers: u32 length of the header, the header, zeros to a multiple of 8, then
// the buffers, each padded to a multiple of 8. The header's `sizes` tells their lengths. The same in view/live_pack.py.

export interface Message {
  readonly header: Record<string, unknown>;
  readonly buffers: Uint8Array[];
}

/** Takes the byte string apart; Error where it is not whole. */
export function unpack(bytes: Uint8Array): Message {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 4) throw new Error("snapshot of less than 4 bytes");
  const length = view.getUint32(0, true);
  if (4 + length > bytes.length) throw new Error("snapshot is cut short");
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const buffers: Uint8Array[] = [];
  let at = padded(4 + length);
  for (const size of header.sizes as number[]) {
    if (!Number.isInteger(size) || size < 0 || at + size > bytes.length) throw new Error("snapshot is cut short");
    buffers.push(bytes.slice(at, at + size));
    at = padded(at + size);
  }
  return { header, buffers };
}

function padded(size: number): number {
  return Math.ceil(size / 8) * 8;
}
