// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// A canvas that fits its place at the screen's own resolution, and gives itself away as PNG or SVG.
import { h } from "./dom";
import { CanvasPen, type Pen, SvgPen } from "./pen";

export type Draw = (pen: Pen, width: number, height: number) => void;

export class Surface {
  readonly root: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly tip: HTMLElement;
  /** Read out when it changes. */
  readonly voice: HTMLElement;
  width = 0;
  height = 0;
  private draw: Draw = () => {};

  private missed = false;

  constructor(
    label: string,
    keys: string,
    private readonly resized: () => void,
    signal: AbortSignal,
  ) {
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": label, "aria-description": keys });
    this.tip = h("div.dts-tip", { hidden: true, role: "tooltip" });
    this.voice = h("div.dts-voice", { "aria-live": "polite" });
    this.root = h("div.dts-surface", {}, this.canvas, this.tip, this.voice);
    const observer = new ResizeObserver(() => resized());
    observer.observe(this.root);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** Draws at the width of the place and a given height; false where there is no place (a hidden tab). */
  paint(height: number, draw: Draw): boolean {
    this.draw = draw;
    const width = Math.floor(this.root.clientWidth);
    if (width < 40) return this.miss();
    this.missed = false;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const [w, hh] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== hh) {
      this.canvas.width = w;
      this.canvas.height = hh;
      this.canvas.style.height = `${height}px`;
    }
    // A note has its place in the old picture.
    if (width !== this.width) this.unhint();
    this.width = width;
    this.height = height;
    const context = this.canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(new CanvasPen(context, this.font), width, height);
    return true;
  }

  /** JupyterLab hides all for a moment while it changes its theme, and a size that comes back as it was is no event: one more try. */
  private miss(): false {
    if (!this.missed) requestAnimationFrame(() => this.resized());
    this.missed = true;
    return false;
  }

  /** Shows a note beside the pointer, within the surface. */
  hint(x: number, y: number, ...lines: string[]): void {
    this.tip.replaceChildren(...lines.map((line) => h("div", {}, line)));
    this.tip.hidden = false;
    const left = Math.min(x + 14, this.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  unhint(): void {
    this.tip.hidden = true;
  }

  svg(paper: string): string {
    const context = this.canvas.getContext("2d")!;
    const pen = new SvgPen(this.width, this.height, this.font, paper, new CanvasPen(context, this.font));
    this.draw(pen, this.width, this.height);
    return pen.toString();
  }

  /** PNG at twice the size on the page, on paper. */
  async png(paper: string): Promise<Blob> {
    const copy = h("canvas");
    copy.width = this.width * 2;
    copy.height = this.height * 2;
    const context = copy.getContext("2d")!;
    context.scale(2, 2);
    context.fillStyle = paper;
    context.fillRect(0, 0, this.width, this.height);
    this.draw(new CanvasPen(context, this.font), this.width, this.height);
    return new Promise((resolve, reject) => copy.toBlob((b) => (b ? resolve(b) : reject(new Error("no picture"))), "image/png"));
  }

  private get font(): string {
    return getComputedStyle(this.root).fontFamily || "sans-serif";
  }
}

/** Place of a pointer event within an element, in CSS pixels. */
export function place(event: MouseEvent, element: Element): [number, number] {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}
