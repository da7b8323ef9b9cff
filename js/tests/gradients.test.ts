// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { blank, Pool, type Rows } from "../src/decode";
import { gradientHit, HIGH, scaleOf, TOP } from "../src/gradientdraw";
import { syncedNorms } from "../src/gradientrows";
import { foldTo, type GradientRow, linesBy, tree, values, verdicts, visible } from "../src/gradients";
import { newTables } from "../src/store";
import type { Spec } from "../src/tables";

/** Rows of a table of two ranks' step 3, with these columns besides. */
function rowsOf(spec: Spec, more: Record<string, number[]>): Rows {
  const given: Record<string, number[]> = { rank: [0, 1], step: [3, 3], ...more };
  const [columns, lists]: [Rows["columns"], Rows["lists"]] = [{}, {}];
  for (const [name, kind] of Object.entries(spec)) {
    if (kind === "list") lists[name] = [null, null];
    else columns[name] = blank(kind, 2);
    given[name]?.forEach((value, i) => {
      columns[name][i] = value;
    });
  }
  return { length: 2, columns, lists };
}

describe("norms over all synchronised gradients", () => {
  it("are none while nothing is known that synchronises them", () => {
    const tables = newTables();
    const source = { tables, pool: new Pool(), fetched: () => null };
    tables.steps.append(rowsOf(tables.steps.spec, { synced_norm: [2, 3] }));
    expect(syncedNorms(source, 3)).toBeNull();
    tables.groups.append(rowsOf(tables.groups.spec, {}));
    expect([...syncedNorms(source, 3)!.norms]).toEqual([
      [0, 2],
      [1, 3],
    ]);
  });
});

describe("gradients", () => {
  const names = [
    "wte.weight",
    "blocks.0.attn.weight",
    "blocks.0.attn.bias",
    "blocks.0.mlp.weight",
    "blocks.1.attn.weight",
    "head.weight",
    "head.bias",
  ];
  const parameters = names.map((name, id) => ({ id, name, shape: "", bucket: id % 2, elements: 100, module: "Linear" }));

  it("form a tree that holds every parameter once and folds", () => {
    const nodes = tree(parameters);
    expect(
      nodes
        .filter((n) => n.leaf)
        .map((n) => n.path)
        .sort(),
    ).toEqual([...names].sort());
    expect(visible(nodes, foldTo(nodes, 3)).map((n) => n.label)).toEqual(["wte.weight", "blocks", "head"]);
    expect(visible(nodes, new Set()).length).toBe(nodes.length);
  });

  it("have a norm over a module that is that of its parts", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0.001, max: 100, noNaN: true }), { minLength: 7, maxLength: 7 }), (norms) => {
        const nodes = visible(tree(parameters), foldTo(tree(parameters), 3));
        const rows: GradientRow[] = norms.map((local, id) => ({ id, rank: 0, ready: id, local, synced: local, nonfinite: 0 }));
        const [wte, blocks, head] = values(nodes, [0], rows, "local");
        expect(wte ** 2 + blocks ** 2 + head ** 2).toBeCloseTo(
          norms.reduce((a, b) => a + b * b, 0),
          6,
        );
      }),
    );
  });

  it("stand by bucket with their parameters under them", () => {
    const nodes = linesBy(parameters, "bucket");
    expect(nodes.filter((n) => !n.leaf).map((n) => n.label)).toEqual(["bucket 0", "bucket 1"]);
    expect(nodes.filter((n) => n.leaf).length).toBe(names.length);
    expect(visible(nodes, new Set(["bucket 0"])).length).toBe(nodes.length - 4);
    expect(linesBy(parameters, "parameter").map((n) => n.label)).toEqual(names);
  });

  it("have a share of non-finite values over all elements that were counted", () => {
    const rows = names.map((_, id) => ({
      id,
      rank: 0,
      ready: 0,
      local: 1,
      synced: 1,
      nonfinite: id === 1 ? 7 : id === 2 ? Number.NaN : 0,
    }));
    const [wte, blocks] = values(visible(tree(parameters), foldTo(tree(parameters), 3)), [0], rows, "nonfinite");
    expect(wte).toBe(0);
    expect(blocks).toBeCloseTo((100 * 7) / 300, 9);
  });

  it("that are not finite are said to be so and not taken for unknown", () => {
    const row = { id: 0, rank: 0, ready: 0, local: Number.NaN, synced: Number.NaN, nonfinite: 3 };
    const nodes = linesBy(parameters.slice(0, 1), "parameter");
    expect(values(nodes, [0], [row], "local")[0]).toBe(Number.POSITIVE_INFINITY);
    expect(values(nodes, [0], [{ ...row, nonfinite: Number.NaN }], "local")[0]).toBeNaN();
    const scale = scaleOf(Float64Array.of(0, 0.01, 1, Number.POSITIVE_INFINITY), true);
    expect([0, Number.POSITIVE_INFINITY].map((v) => scale.place(v))).toEqual([0, 1]);
    expect(scale.place(0.01)).toBeLessThan(scale.place(0.1));
  });

  it("are found again under the pointer", () => {
    const nodes = linesBy(parameters, "parameter");
    const state = {
      nodes,
      folded: new Set<string>(),
      ranks: [0, 1, 5],
      values: new Float64Array(21),
      metric: "local",
      line: -1,
      rank: null,
    } as const;
    fc.assert(
      fc.property(fc.nat(6), fc.nat(2), (line, column) => {
        const grid = { left: 100, cell: 60 };
        expect(gradientHit(grid, state, 100 + (column + 0.5) * 60, TOP + (line + 0.5) * HIGH)).toEqual({ line, column });
      }),
    );
    expect(gradientHit({ left: 100, cell: 60 }, state, 50, TOP + 1)).toEqual({ line: 0, column: -1 });
    expect(gradientHit({ left: 100, cell: 60 }, state, 300, 1).line).toBe(-1);
  });

  it("say whether ranks agree and values are finite", () => {
    const base = { id: 0, ready: 1, local: 1, synced: 2, nonfinite: 0 };
    const name = new Map([[0, "wte.weight"]]);
    const flat = (a: number, b: number) =>
      new Map([
        [0, a],
        [1, b],
      ]);
    expect(
      verdicts(
        [
          { ...base, rank: 0 },
          { ...base, rank: 1 },
        ],
        name,
        flat(2, 2),
      ).every((v) => v.good),
    ).toBe(true);
    const bad = verdicts(
      [
        { ...base, rank: 0 },
        { ...base, rank: 1, synced: 2.1, nonfinite: 4 },
      ],
      name,
      flat(2, 2.1),
    );
    expect(bad.map((v) => v.text)).toEqual([
      "synced gradients differ between rank 0 and rank 1, most in wte.weight",
      "non-finite values on rank 1, in wte.weight",
    ]);
    expect(verdicts([{ ...base, rank: 0, nonfinite: Number.NaN }], name, null)).toEqual([]);
  });
});
