// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Leads to a line of the user's source: a cell of the notebook around the panels, else the place as text.

const CELL = /In ?\[(\d+)\].*?:(\d+)$/;

/** Number of the cell and line that "Cell In[3]:12" names; null where it is of no cell. */
export function cellLine(line: string): { cell: number; line: number } | null {
  const found = CELL.exec(line);
  return found ? { cell: Number(found[1]), line: Number(found[2]) } : null;
}

/** Brings the line into view where it is in a cell of this notebook; false where it is not. */
export function reveal(line: string, root: Element): boolean {
  const at = cellLine(line);
  const cell = at && cellOf(at.cell, root);
  if (!at || !cell) return false;
  const target = cell.querySelectorAll(".jp-InputArea-editor .cm-line")[at.line - 1] ?? cell;
  target.scrollIntoView({ block: "center" });
  target.animate([{ background: "rgb(219 102 12 / 45%)" }, { background: "transparent" }], 2500);
  return true;
}

/** The cell of that number; one that is still running has none yet, and is the one that shows the panels. */
function cellOf(number: number, root: Element): Element | null {
  for (const cell of root.ownerDocument.querySelectorAll(".jp-CodeCell")) {
    if (cell.querySelector(".jp-InputPrompt")?.textContent?.trim() === `[${number}]:`) return cell;
  }
  const own = root.closest(".jp-CodeCell");
  return own?.querySelector(".jp-InputPrompt")?.textContent?.includes("*") ? own : null;
}
