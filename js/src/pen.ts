// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// The few strokes that the panels draw with, on a canvas or into an SVG.

export interface TextStyle {
  readonly fill: string;
  readonly align?: "left" | "right" | "center";
  readonly weight?: number;
  readonly size?: number;
}

export interface Pen {
  rect(x: number, y: number, w: number, h: number, fill: string): void;
  frame(x: number, y: number, w: number, h: number, stroke: string, width: number): void;
  line(points: readonly number[], stroke: string, width: number, dash?: readonly number[]): void;
  circle(x: number, y: number, r: number, fill: string, stroke?: string): void;
  text(text: string, x: number, y: number, style: TextStyle): void;
  /** A picture of pixels stretched without smoothing. */
  raster(image: HTMLCanvasElement, x: number, y: number, w: number, h: number): void;
  within(x: number, y: number, w: number, h: number, draw: () => void): void;
  measure(text: string, style?: Omit<TextStyle, "fill">): number;
}

export const FONT_SIZE = 12;

/** A text that is no wider than `wide`: its beginning and an ellipsis where it would be. */
export function fitted(pen: Pen, text: string, wide: number, style: Omit<TextStyle, "fill"> = {}): string {
  if (pen.measure(text, style) <= wide) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measure(`${text.slice(0, middle)}…`, style) <= wide) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}

/** Text is set on its middle line. */
export class CanvasPen implements Pen {
  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly font: string,
  ) {
    context.textBaseline = "middle";
  }

  rect(x: number, y: number, w: number, h: number, fill: string): void {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, w, h);
  }

  frame(x: number, y: number, w: number, h: number, stroke: string, width: number): void {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = width;
    this.context.strokeRect(x, y, w, h);
  }

  line(points: readonly number[], stroke: string, width: number, dash: readonly number[] = []): void {
    const c = this.context;
    c.strokeStyle = stroke;
    c.lineWidth = width;
    c.setLineDash([...dash]);
    c.beginPath();
    for (let i = 0; i < points.length; i += 2) {
      if (i) c.lineTo(points[i], points[i + 1]);
      else c.moveTo(points[0], points[1]);
    }
    c.stroke();
    c.setLineDash([]);
  }

  circle(x: number, y: number, r: number, fill: string, stroke?: string): void {
    const c = this.context;
    c.beginPath();
    c.arc(x, y, r, 0, 2 * Math.PI);
    c.fillStyle = fill;
    c.fill();
    if (!stroke) return;
    c.strokeStyle = stroke;
    c.lineWidth = 1.5;
    c.stroke();
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    this.context.font = this.fontOf(style);
    this.context.fillStyle = style.fill;
    this.context.textAlign = style.align ?? "left";
    this.context.fillText(text, x, y);
  }

  raster(image: HTMLCanvasElement, x: number, y: number, w: number, h: number): void {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(image, x, y, w, h);
  }

  within(x: number, y: number, w: number, h: number, draw: () => void): void {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, w, h);
    this.context.clip();
    draw();
    this.context.restore();
    this.context.textBaseline = "middle";
  }

  measure(text: string, style: Omit<TextStyle, "fill"> = {}): number {
    this.context.font = this.fontOf(style);
    return this.context.measureText(text).width;
  }

  private fontOf(style: Omit<TextStyle, "fill">): string {
    return `${style.weight ?? 400} ${style.size ?? FONT_SIZE}px ${this.font}`;
  }
}

/** The same into SVG text. */
export class SvgPen implements Pen {
  private readonly parts: string[] = [];
  private clips = 0;

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly font: string,
    private readonly paper: string,
    private readonly ruler: Pen,
  ) {}

  rect(x: number, y: number, w: number, h: number, fill: string): void {
    this.parts.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}"/>`);
  }

  frame(x: number, y: number, w: number, h: number, stroke: string, width: number): void {
    const box = `x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}"`;
    this.parts.push(`<rect ${box} fill="none" stroke="${stroke}" stroke-width="${width}"/>`);
  }

  line(points: readonly number[], stroke: string, width: number, dash: readonly number[] = []): void {
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<polyline points="${points.map(r).join(" ")}" fill="none" stroke="${stroke}" stroke-width="${width}"${dashes}/>`);
  }

  circle(x: number, y: number, radius: number, fill: string, stroke = "none"): void {
    this.parts.push(`<circle cx="${r(x)}" cy="${r(y)}" r="${r(radius)}" fill="${fill}" stroke="${stroke}" stroke-width="1.5"/>`);
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    const anchor = { left: "start", right: "end", center: "middle" }[style.align ?? "left"];
    const look = `font-size="${style.size ?? FONT_SIZE}" font-weight="${style.weight ?? 400}" fill="${style.fill}"`;
    this.parts.push(`<text x="${r(x)}" y="${r(y)}" dy="0.35em" text-anchor="${anchor}" ${look}>${escaped(text)}</text>`);
  }

  raster(image: HTMLCanvasElement, x: number, y: number, w: number, h: number): void {
    const box = `x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" preserveAspectRatio="none"`;
    this.parts.push(`<image ${box} style="image-rendering:pixelated" href="${image.toDataURL("image/png")}"/>`);
  }

  within(x: number, y: number, w: number, h: number, draw: () => void): void {
    const id = `clip${this.clips++}`;
    const box = `<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}"/>`;
    this.parts.push(`<clipPath id="${id}">${box}</clipPath><g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }

  measure(text: string, style?: Omit<TextStyle, "fill">): number {
    return this.ruler.measure(text, style);
  }

  toString(): string {
    const [w, h] = [this.width, this.height];
    const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}"`;
    const paper = `<rect width="${w}" height="${h}" fill="${this.paper}"/>`;
    return `${head} font-family="${escaped(this.font)}">${paper}${this.parts.join("")}</svg>`;
  }
}

function r(value: number): number {
  return Math.round(value * 100) / 100;
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]!);
}
