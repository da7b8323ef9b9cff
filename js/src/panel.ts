// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// What every panel is given, and its frame: a title that says the quantity, quiet controls at the right.
import { button, download, h } from "./dom";
import type { Place } from "./history";
import type { Model } from "./model";
import type { Colors, Theme } from "./palette";
import type { Surface } from "./surface";

export interface Context {
  readonly model: Model;
  readonly signal: AbortSignal;
  readonly place: Place;
  readonly colors: Colors;
  readonly theme: Theme;
  /** Whether the selection follows the newest step. */
  readonly following: boolean;
  go(change: Partial<Place>): void;
  /** Goes there without a trace in the history. */
  drift(change: Partial<Place>): void;
  follow(): void;
  /** Asks for a draw soon, of one panel where no other shows what has changed. */
  redraw(one?: Panel): void;
  note(text: string): void;
  /** What the page lacks of the chosen step, in words; "" where nothing. It is asked for. */
  missing(): string;
}

export interface Panel {
  readonly root: HTMLElement;
  update(): void;
}

export interface Frame {
  readonly root: HTMLElement;
  readonly title: HTMLElement;
  readonly sub: HTMLElement;
  readonly controls: HTMLElement;
  readonly body: HTMLElement;
}

let count = 0;

export function frame(name: string, title: string): Frame {
  const id = `dts-${name}-${++count}`;
  const parts = {
    title: h("h3", { id }, title),
    sub: h("span.dts-sub"),
    controls: h("div.dts-controls"),
    body: h("div.dts-body"),
  };
  const head = h("header", {}, parts.title, parts.sub, parts.controls);
  return { root: h("section.dts-panel", { "aria-labelledby": id, "data-panel": name }, head, parts.body), ...parts };
}

/** A quiet menu: copy as PNG, SVG or CSV. */
export function copyMenu(context: Context, name: string, surface: Surface | null, csv: () => string): HTMLElement {
  const menu = h("details.dts-copy", {}, h("summary", { "aria-label": `copy ${name}` }, "copy"));
  const act = (text: string, run: () => Promise<void> | void) =>
    button(text, () => {
      menu.open = false;
      Promise.resolve(run()).catch((error) => context.note(`could not copy ${name}: ${error.message}`));
    });
  const list = h("div.dts-menu", {});
  if (surface) {
    list.append(act("PNG", async () => give(context, `${name}.png`, await surface.png(context.colors.paper))));
    list.append(act("SVG", () => give(context, `${name}.svg`, new Blob([surface.svg(context.colors.paper)], { type: "image/svg+xml" }))));
  }
  list.append(act("CSV", () => give(context, `${name}.csv`, new Blob([csv()], { type: "text/csv" }))));
  menu.append(list);
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") menu.open = false;
  });
  document.addEventListener(
    "pointerdown",
    (event) => {
      if (!menu.contains(event.target as Node)) menu.open = false;
    },
    { signal: context.signal },
  );
  return menu;
}

/** To the clipboard where the browser lets us, else as a file. */
async function give(context: Context, name: string, blob: Blob): Promise<void> {
  try {
    if (blob.type === "image/png") await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    else await navigator.clipboard.writeText(await blob.text());
    context.note(`${name} is on the clipboard`);
  } catch {
    // No clipboard without a secure page or permission.
    download(name, blob);
    context.note(`${name} was saved as a file`);
  }
}
