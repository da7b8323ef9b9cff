// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The real capture of data/straggler.bin: 4 H200, rank 2 does about 27 ms of extra matmuls a step. script/write-browser-data wrote it.
import { readFileSync } from "node:fs";
import { type Message, unpack } from "../src/container";
import { Model } from "../src/model";

export function bytes(): Uint8Array {
  return new Uint8Array(readFileSync(new URL("./data/straggler.bin", import.meta.url)));
}

export function message(): Message {
  return unpack(bytes());
}

export function model(): Model {
  const made = new Model();
  made.ingest(message());
  return made;
}
