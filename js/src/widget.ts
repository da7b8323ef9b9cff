// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The anywidget entry: one model a run, any number of views on it.
import { Acks } from "./acks";
import { App } from "./app";
import { unpack } from "./container";
import { aligned } from "./decode";
import { Fetching } from "./fetching";
import type { Place } from "./history";
import { Model } from "./model";

/** The part of the widget's model that we use (see anywidget's front-end module). */
interface Widget {
  get(name: string): unknown;
  send(content: unknown): void;
  on(name: string, call: (...values: never[]) => void): void;
}

type Content = { kind?: string; frame?: number; reset?: boolean } & Record<string, unknown>;

interface Page {
  readonly model: Model;
  readonly apps: Set<App>;
  readonly widget: Widget;
  readonly fetching: Fetching;
  readonly acks: Acks;
  /** Frames were missed: this page was not there yet, or the link lost some. */
  gap: boolean;
  gone: boolean;
  asked: number;
}

/** By the key of the widget's model: every call gets a new proxy of the same model. */
const pages = new Map<string, Page>();
const STATIC_CELLS = 16 * 1024 * 1024;
const ASK_AGAIN_MS = 2000;

/** Synchronous on purpose: the host gives a module two seconds to initialise. */
function initialize({ model: widget }: { model: Widget }): () => void {
  const key = widget.get("key") as string;
  const live = widget.get("live") as boolean;
  const page: Page = {
    model: new Model(live ? undefined : STATIC_CELLS),
    apps: new Set(),
    widget,
    fetching: new Fetching((step) => send(page, { kind: "step", step })),
    acks: new Acks(),
    gap: false,
    gone: false,
    asked: Number.NEGATIVE_INFINITY,
  };
  pages.set(key, page);
  takeSnapshot(page);
  widget.on("change:snapshot", () => {
    if (page.gap || page.model.frame < 0) takeSnapshot(page);
  });
  widget.on("msg:custom", (content: Content, buffers: DataView[]) => receive(page, content, buffers));
  // The host tells that the link changed, not how: whoever answers is there.
  for (const name of ["comm_live_update", "comm:close", "destroy"]) widget.on(name, () => doubt(page));
  if (page.model.status.live) ask(page);
  return () => pages.delete(key);
}

/** Draws at once from what the kernel left in the trait, before or without an answer from it. */
function takeSnapshot(page: Page): void {
  const raw = page.widget.get("snapshot") as DataView | null;
  if (!raw?.byteLength) return;
  try {
    const { header, buffers } = unpack(aligned(raw));
    page.fetching.forget();
    page.model.ingest({ header, buffers });
    page.gap = false;
  } catch (error) {
    page.model.damaged++;
    console.warn("dtscope: the snapshot could not be read:", error);
  }
  redraw(page);
}

function receive(page: Page, content: Content, buffers: DataView[]): void {
  if (page.gone) {
    page.gone = false;
    redraw(page);
  }
  if (content.kind === "step" && typeof content.step === "number") {
    page.model.ingestStep({ header: content, buffers: plain(buffers) });
    page.fetching.arrived(content.step);
    return redraw(page);
  }
  const { frame } = content;
  if (content.kind !== "data" || typeof frame !== "number") return;
  if (!content.reset && frame <= page.model.frame) return;
  if (content.reset) page.gap = false;
  else if (frame !== page.model.frame + 1) {
    // Shown with a hole until the kernel, or its next snapshot where it is busy, fills it.
    page.gap = true;
    ask(page);
  }
  if (content.reset) page.fetching.forget();
  page.model.ingest({ header: content, buffers: plain(buffers) });
  if (page.acks.due(Number(content.heard), performance.now())) page.widget.send({ kind: "ack", frame });
  redraw(page);
}

/** Asks for everything; a busy kernel may answer late or never. */
function ask(page: Page): void {
  const now = performance.now();
  if (now - page.asked < ASK_AGAIN_MS) return;
  page.asked = now;
  page.widget.send({ kind: "hello" });
}

function doubt(page: Page): void {
  page.gone = true;
  redraw(page);
  send(page, { kind: "ping" });
}

function send(page: Page, content: Record<string, unknown>): void {
  try {
    page.widget.send(content);
  } catch {
    // Without a comm nothing can be sent, and the kernel is gone indeed.
    page.gone = true;
  }
}

function plain(buffers: DataView[]): Uint8Array[] {
  return buffers.map((b) => new Uint8Array(b.buffer, b.byteOffset, b.byteLength));
}

function redraw(page: Page): void {
  for (const app of page.apps) app.redraw();
}

function render({ model: widget, el }: { model: Widget; el: HTMLElement }): () => void {
  const page = pages.get(widget.get("key") as string)!;
  const app = new App(page.model, {
    only: (widget.get("panel") as string) ?? "",
    ...place(widget.get("place") as Record<string, unknown> | null),
    gone: () => page.gone,
    fetching: page.fetching,
  });
  page.apps.add(app);
  el.append(app.root);
  return () => {
    page.apps.delete(app);
    app.end();
  };
}

function place(raw: Record<string, unknown> | null): { place: Partial<Place> } | object {
  if (!raw || !Object.keys(raw).length) return {};
  const known: Record<string, unknown> = {};
  for (const key of ["step", "rank"]) if (typeof raw[key] === "number") known[key] = raw[key];
  return { place: known };
}

export default { initialize, render };
