// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Findings of the diagnosis, and the sentence that states one.
import { duration, fixed, ranks } from "./format";

export interface Finding {
  readonly kind: string;
  readonly cause: string;
  readonly ranks: number[];
  readonly severity: string;
  readonly confidence: number;
  readonly costMs: number;
  readonly steps: number[];
  readonly evidence: Record<string, unknown>;
  readonly advice: string;
  readonly sentence: string;
}

/** Reads what the kernel sent; entries that are no finding are left out. */
export function readFindings(raw: unknown): Finding[] {
  if (!Array.isArray(raw)) return [];
  return raw.filter((f) => f && typeof f === "object" && typeof f.kind === "string").map(read);
}

function read(raw: Record<string, unknown>): Finding {
  const list = (value: unknown) => (Array.isArray(value) ? value.filter((v): v is number => typeof v === "number") : []);
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  const real = (value: unknown) => (typeof value === "number" ? value : Number.NaN);
  const finding = {
    kind: text(raw.kind),
    cause: text(raw.cause),
    ranks: list(raw.ranks),
    severity: text(raw.severity),
    confidence: real(raw.confidence),
    costMs: real(raw.cost_ms),
    steps: list(raw.steps),
    evidence: (raw.evidence ?? {}) as Record<string, unknown>,
    advice: text(raw.advice),
  };
  return { ...finding, sentence: text(raw.sentence) || sentence(finding) };
}

const WHY: Record<string, string> = {
  compute: "more compute",
  slow_device: "a slower device",
  input: "waiting for input",
  host_stall: "a stalled host",
  host_sync: "host synchronisation",
  host_to_device_copy: "copies to the device",
  garbage_collection: "garbage collection",
};

const SAYS: Record<string, (who: string, cause: string) => string> = {
  slow_link: (who) => `Communication of ${who} is slow.`,
  contention: (who) => `Communication and compute of ${who} slow each other.`,
  low_overlap: (who) => `Communication of ${who} hardly overlaps with compute.`,
  implicit_copy: (who) => `Copies that nobody asked for on ${who}.`,
  hang: (who) => `${capital(who)} hangs.`,
  desync: (who) => `${capital(who)} calls other collectives than the rest.`,
  nonfinite: (who, cause) => `The ${cause === "loss" ? "loss" : "gradients"} of ${who} became NaN or infinite.`,
  insufficient_data: () => "There is not enough data for a verdict.",
};

/** One sentence: who, what, what it costs, since when. */
export function sentence(f: Omit<Finding, "sentence">): string {
  const who = f.ranks.length === 0 ? "all ranks" : f.ranks.length === 1 ? `rank ${f.ranks[0]}` : `ranks ${ranks(f.ranks)}`;
  const since = f.steps.length ? `, since step ${Math.min(...f.steps)}` : "";
  if (f.kind === "straggler") {
    const why = WHY[f.cause] ?? "an unknown cause";
    return `${capital(who)} ${f.ranks.length === 1 ? "is" : "are"} late: ${duration(f.costMs)} a step by ${why}${since}. The others wait.`;
  }
  const said = SAYS[f.kind]?.(who, f.cause) ?? `${f.kind} (${f.cause}) on ${who}.`;
  return f.costMs > 0 ? `${said.slice(0, -1)}: ${duration(f.costMs)} a step${since}.` : said;
}

/** Cause and confidence in small print. */
export function detail(f: Finding): string {
  const sure = Number.isFinite(f.confidence) ? ` Confidence ${fixed(f.confidence, 2)}.` : "";
  return `${f.advice}${sure}`.trim();
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
