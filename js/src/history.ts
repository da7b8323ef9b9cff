// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Where the user looks, and back and forward through where they looked.

export interface Place {
  readonly step: number | null;
  readonly rank: number | null;
  /** Key of a collective within the step. */
  readonly collective: string | null;
  readonly tab: string;
  /** A kernel or host activity that the timeline is to show. */
  readonly find: string;
}

export const START: Place = { step: null, rank: null, collective: null, tab: "gradients", find: "" };

export class Trail {
  private readonly places: Place[] = [START];
  private at = 0;

  get here(): Place {
    return this.places[this.at];
  }

  get canBack(): boolean {
    return this.at > 0;
  }

  get canForward(): boolean {
    return this.at < this.places.length - 1;
  }

  /** Goes on to another place; what lay ahead is forgotten, the last 100 are kept. */
  go(change: Partial<Place>): boolean {
    const next = { ...this.here, ...change };
    if ((Object.keys(next) as (keyof Place)[]).every((key) => next[key] === this.here[key])) return false;
    this.places.splice(this.at + 1, this.places.length, next);
    if (this.places.length > 100) this.places.shift();
    this.at = this.places.length - 1;
    return true;
  }

  /** Changes the place without a trace, as following a live run does. */
  drift(change: Partial<Place>): void {
    this.places[this.at] = { ...this.here, ...change };
  }

  back(): boolean {
    if (!this.canBack) return false;
    this.at--;
    return true;
  }

  forward(): boolean {
    if (!this.canForward) return false;
    this.at++;
    return true;
  }
}

/** The Python text that shows this place again. */
export function permalink(panel: string, place: Place): string {
  const words = [`"${panel}"`];
  if (place.rank !== null) words.push(`rank=${place.rank}`);
  if (place.step !== null) words.push(`step=${place.step}`);
  return `run.show(${words.join(", ")})`;
}
