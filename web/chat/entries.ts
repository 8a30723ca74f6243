/** What a conversation consists of, as it is shown and kept. */
import type { Card, CardOutcome, OutgoingKind, OutgoingState } from "@hermes-mobile/client";

interface Shared {
  readonly key: string;
  /** Place in the conversation. */
  readonly order: number;
  /** Epoch milliseconds. */
  readonly at: number;
}

/** Something the person sent. */
export interface Mine extends Shared {
  readonly type: "mine";
  readonly id: string;
  readonly kind: OutgoingKind;
  readonly text: string;
  readonly state: OutgoingState;
  readonly failure?: { readonly code: string; readonly message: string };
  readonly file?: { readonly mime: string; readonly filename: string; readonly size: number };
  readonly blob?: Blob;
}

/** A text of the agent. */
export interface Said extends Shared {
  readonly type: "said";
  readonly id: string;
  readonly text: string;
  readonly final: boolean;
  readonly complete: boolean;
}

/** A file of the agent: here as `blob`, or elsewhere at `url`. */
export interface Shown extends Shared {
  readonly type: "shown";
  readonly id: string;
  readonly kind: string;
  readonly mime: string;
  readonly filename: string;
  readonly caption?: string;
  readonly size: number;
  readonly blob?: Blob;
  readonly url?: string;
}

/** A file of the agent that did not arrive. */
export interface Missed extends Shared {
  readonly type: "missed";
  readonly id: string;
  readonly filename: string;
}

/** A card. It is open until `outcome`; `chosen` is what the person picked meanwhile. */
export interface Asked extends Shared {
  readonly type: "asked";
  readonly card: Card;
  readonly chosen?: { readonly optionId?: string; readonly text?: string };
  readonly outcome?: CardOutcome;
  /** The person's own words, once they were the answer. */
  readonly answerText?: string;
}

export type Entry = Mine | Said | Shown | Missed | Asked;

/** An entry before it has its place. */
export type NewEntry =
  | Omit<Mine, "order" | "at">
  | Omit<Said, "order" | "at">
  | Omit<Shown, "order" | "at">
  | Omit<Missed, "order" | "at">
  | Omit<Asked, "order" | "at">;

export const keyOf = {
  mine: (id: string): string => `mine:${id}`,
  said: (id: string): string => `said:${id}`,
  file: (id: string): string => `file:${id}`,
  card: (id: string): string => `card:${id}`,
};

/** Still changing by itself: it may be written to the disk a little later. */
export function isDraft(entry: Entry): boolean {
  return entry.type === "said" && !entry.final;
}

/** Entries by key, in their order. */
export class EntryList {
  readonly #entries = new Map<string, Entry>();
  #ordered: readonly Entry[] | undefined;
  #lastOrder = 0;

  get(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** In order of their places. The same array as long as nothing changed. */
  all(): readonly Entry[] {
    this.#ordered ??= [...this.#entries.values()].sort((one, other) => one.order - other.order);
    return this.#ordered;
  }

  /** Adds at the end, or changes in place. */
  put(entry: NewEntry, now: number): Entry {
    const old = this.#entries.get(entry.key);
    const order = old?.order ?? this.#lastOrder + 1;
    const placed = { ...entry, order, at: old?.at ?? now } as Entry;
    this.restore(placed);
    return placed;
  }

  /** Takes an entry that has its place already, from the disk or another window. */
  restore(entry: Entry): void {
    this.#entries.set(entry.key, entry);
    this.#lastOrder = Math.max(this.#lastOrder, entry.order);
    this.#ordered = undefined;
  }

  remove(key: string): boolean {
    this.#ordered = undefined;
    return this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
    this.#ordered = undefined;
  }
}
