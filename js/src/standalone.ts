// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The offline page: the same panels over data that lies in the page itself.
import { App } from "./app";
import { unpack } from "./container";
import { Model } from "./model";

async function start(): Promise<void> {
  const root = document.getElementById("dtscope")!;
  try {
    const text = document.getElementById("dtscope-data")!.textContent!.trim();
    const { header, buffers } = unpack(await inflate(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))));
    const model = new Model(16 * 1024 * 1024);
    performance.mark("dtscope-ingest");
    model.ingest({ header, buffers });
    root.replaceChildren();
    const app = new App(model);
    root.append(app.root);
    app.redraw();
    const tint = () =>
      requestAnimationFrame(() =>
        requestAnimationFrame(() => {
          document.body.style.background = getComputedStyle(app.root).getPropertyValue("--dts-paper");
        }),
      );
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) matchMedia(query).addEventListener("change", tint);
    tint();
    requestAnimationFrame(() => requestAnimationFrame(() => performance.measure("dtscope-first-draw", "dtscope-ingest")));
  } catch (error) {
    root.textContent = `This page's data could not be read: ${(error as Error).message}. Save it again with run.save_html(path).`;
  }
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

void start();
