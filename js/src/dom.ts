// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Small helpers to make elements; text is always set as text, never as HTML.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

/** h("button.quiet", {title: "..."}, "text"): an element with classes, attributes, listeners (on...) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  what: K | `${K}.${string}`,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag) as HTMLElementTagNameMap[K];
  element.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
  return element;
}

/** Replaces the children only where their text or number changed would be costly; here: always. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
}

/** Sets text where it differs, so that a screen reader and the selection are left alone. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A quiet labelled select: "metric exposed". */
export function choice(
  label: string,
  options: readonly (readonly [string, string])[],
  value: string,
  change: (value: string) => void,
): HTMLLabelElement & { select: HTMLSelectElement } {
  const select = h("select", { onchange: () => change(select.value) });
  for (const [key, text] of options) select.append(h("option", { value: key, selected: key === value }, text));
  const root = h("label.dts-choice", {}, h("span", {}, label), select);
  return Object.assign(root, { select });
}

export function button(text: string, click: () => void, label?: string, look = ""): HTMLButtonElement {
  return h("button", { type: "button", class: `dts-link ${look}`.trim(), onclick: () => click(), "aria-label": label, title: label }, text);
}

/** Puts a text file or a picture into the user's hands. */
export function download(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const anchor = h("a", { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
