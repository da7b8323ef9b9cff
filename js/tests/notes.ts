// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// A pen that notes what is drawn; every letter is 6 px wide.
import type { Pen, TextStyle } from "../src/pen";

export interface Note {
  readonly text: string;
  readonly left: number;
  readonly right: number;
  readonly y: number;
}

export class Notes implements Pen {
  readonly texts: Note[] = [];
  circles = 0;
  lines = 0;
  rects = 0;

  frame(): void {}
  raster(): void {}

  rect(): void {
    this.rects++;
  }

  line(): void {
    this.lines++;
  }

  circle(): void {
    this.circles++;
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    const wide = this.measure(text);
    const left = x - (style.align === "right" ? wide : style.align === "center" ? wide / 2 : 0);
    this.texts.push({ text, left, right: left + wide, y });
  }

  within(_x: number, _y: number, _w: number, _h: number, draw: () => void): void {
    draw();
  }

  measure(text: string): number {
    return 6 * text.length;
  }
}
