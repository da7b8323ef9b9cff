// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Facts of a run from its tables: what was lost, what watching costs, devices, clocks, hosts and process groups.
import type { Pool } from "./decode";
import { median } from "./instead";
import type { TableStore, Tables } from "./store";

interface Source {
  readonly tables: Tables;
  readonly pool: Pool;
}

/** A fact that is worked out when its table has changed, not each time the panels are drawn. */
function lately<T>(make: (source: Source, table: TableStore) => T, name: "notes" | "devices"): (source: Source) => T {
  const kept = new WeakMap<TableStore, { version: number; value: T }>();
  return (source) => {
    const table = source.tables[name];
    let known = kept.get(table);
    if (known?.version !== table.version) {
      known = { version: table.version, value: make(source, table) };
      kept.set(table, known);
    }
    return known.value;
  };
}

/** Rows that the agents left out, of any table. */
export const dropped = lately(({ pool }, notes) => {
  let sum = 0;
  notes.each(null, (c, i) => {
    const kind = pool.text(c.kind[i]);
    if ((kind === "dropped" || kind === "thinned") && c.value[i] > 0) sum += c.value[i];
  });
  return sum;
}, "notes");

/** Median cost of the observer as measured by the ranks, a share of the step; NaN where not measured. */
export const observerCost = lately(({ pool }, notes) => {
  const shares: number[] = [];
  notes.each(null, (c, i) => {
    const measured = pool.text(c.kind[i]) === "observer" && pool.text(c.name[i]) === "cost_ratio";
    if (measured && !Number.isNaN(c.value[i])) shares.push(c.value[i]);
  });
  return shares.length ? median(shares) : Number.NaN;
}, "notes");

/** The devices in few words, e.g. 4 × NVIDIA H200. */
export const deviceWords = lately(({ pool }, devices) => {
  const names = new Map<string, Set<string>>();
  devices.each(null, (c, i) => {
    const name = pool.text(c.name[i]);
    if (name) names.set(name, (names.get(name) ?? new Set()).add(`${c.rank[i]}/${pool.text(c.device[i])}`));
  });
  return [...names].map(([name, keys]) => (keys.size > 1 ? `${keys.size} × ${name}` : name)).join(", ");
}, "devices");

/** Ranks that train on a GPU. */
export const ranksOnDevices = lately(({ pool }, devices) => {
  const ranks = new Set<number>();
  devices.each(null, (c, i) => {
    if (pool.text(c.device[i])?.startsWith("cuda")) ranks.add(c.rank[i]);
  });
  return ranks;
}, "devices");

/** What is known of the clocks: hosts seen, and the largest uncertainty in ms. */
export function clocks({ tables }: Source): { hosts: number; uncertaintyMs: number } {
  const hosts = new Set<number>();
  let uncertainty = 0;
  tables.clocks.each(null, (c, i) => {
    hosts.add(c.boot_id[i] >= 0 ? c.boot_id[i] : c.host[i]);
    if (c.uncertainty_ns[i] > 0) uncertainty = Math.max(uncertainty, c.uncertainty_ns[i] / 1e6);
  });
  return { hosts: hosts.size, uncertaintyMs: uncertainty };
}

/** Host name by rank, without the domain where that tells nothing apart; ranks of which no clock was read are left out. */
export function hosts({ tables, pool }: Source): Map<number, string> {
  const found = new Map<number, string>();
  tables.clocks.each(null, (c, i) => {
    found.set(c.rank[i], pool.text(c.host[i]) ?? "");
  });
  const short = new Map([...found].map(([rank, name]) => [rank, name.split(".")[0]]));
  return new Set(short.values()).size === new Set(found.values()).size ? short : found;
}

/** Descriptions that torch gives to groups of which the user said nothing. */
const UNTOLD = new Set(["", "undefined", "default_pg"]);

/** By rank the name, or the user's description, of the largest process group that it shares with some but not all of `size` ranks; ranks of none are left out. */
export function groupsByRank({ tables, pool }: Source, size: number): Map<number, string> {
  const members = new Map<string, Set<number>>();
  tables.groups.each(null, (c, i) => {
    const said = pool.text(c.description[i]) ?? "";
    const name = UNTOLD.has(said) ? (pool.text(c.process_group[i]) ?? "") : said;
    members.set(name, (members.get(name) ?? new Set()).add(c.rank[i]));
  });
  const parts = [...members].filter(([, ranks]) => ranks.size > 1 && ranks.size < size);
  parts.sort((a, b) => b[1].size - a[1].size || a[0].localeCompare(b[0], "en", { numeric: true }));
  const found = new Map<number, string>();
  for (const [name, ranks] of parts) for (const rank of ranks) if (!found.has(rank)) found.set(rank, name);
  return found;
}
