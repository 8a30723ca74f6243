/** What waits to be taken by the agent: order, states, bounds. Knows no socket. */
import type { Clock } from "./clock.ts";
import { HermesError } from "./errors.ts";
import type { Outgoing, OutgoingItem, OutgoingState, Warning } from "./events.ts";
import type { OutboxContent, OutboxRecord, OutboxStorage } from "./storage.ts";

export interface OutboxLimit {
  readonly items: number;
  readonly bytes: number;
}

/** One item while it is in the outbox. */
export interface OutboxEntry {
  record: OutboxRecord;
  state: OutgoingState;
  /** Left by an earlier life of the app: before everything new, also if the clock was set back. */
  readonly earlier: boolean;
  /** Hand-overs the door reported as failed, on this item. */
  failures: number;
  /** Not to be sent before this time (epoch milliseconds). */
  notBefore: number;
  readonly outgoing: Outgoing;
  readonly settle: { readonly accept: () => void; readonly reject: (error: HermesError) => void };
}

/** A storage that does not answer for this long holds the connection up no longer. Milliseconds. */
const STORAGE_PATIENCE = 10_000;

export interface OutboxListener {
  /** What an earlier life left is here now: it may be sent. */
  loaded(): void;
  changed(item: OutgoingItem): void;
  warning(warning: Warning): void;
}

export class Outbox {
  readonly #entries = new Map<string, OutboxEntry>();
  readonly #storage: OutboxStorage;
  readonly #clock: Clock;
  readonly #limit: OutboxLimit;
  readonly #listener: OutboxListener;
  #lastSeq = 0;
  #loaded: Promise<void> | undefined;
  /** Taken out while the storage was still being read: not to be brought back by it. */
  #gone: Set<string> | undefined = new Set();
  /** Places in line of items whose bytes are still being read: what comes later waits for them. */
  readonly #reserved = new Set<number>();

  constructor(storage: OutboxStorage, clock: Clock, limit: OutboxLimit, listener: OutboxListener) {
    this.#storage = storage;
    this.#clock = clock;
    this.#limit = limit;
    this.#listener = listener;
  }

  /**
   * Brings back what an earlier life of the app left. Safe to call more than once. Where the storage
   * hangs it is waited for in vain no longer than `STORAGE_PATIENCE`; what comes later is taken all the same.
   */
  load(): Promise<void> {
    this.#loaded ??= new Promise((resolve) => {
      const timer = this.#clock.setTimeout(() => {
        this.#warn("The storage of the outbox does not answer; it is not waited for.", undefined);
        resolve();
      }, STORAGE_PATIENCE);
      void this.#load().then(() => {
        this.#clock.clearTimeout(timer);
        resolve();
        this.#listener.loaded();
      });
    });
    return this.#loaded;
  }

  async #load(): Promise<void> {
    let records: readonly OutboxRecord[] = [];
    try {
      records = await this.#storage.load();
    } catch (error) {
      this.#warn("The outbox could not be read from the storage; it starts empty.", error);
    }
    for (const record of records) {
      this.#lastSeq = Math.max(this.#lastSeq, record.seq);
      if (this.#entries.has(record.id) || this.#gone?.has(record.id) === true) continue;
      const entry = newEntry(record, Promise.resolve(), true);
      this.#entries.set(record.id, entry);
      this.#listener.changed(describe(entry));
    }
    this.#gone = undefined;
  }

  /** A place in line for an item that is not complete yet. Give it to `add`, or `release` it. */
  reserve(): number {
    // Later than everything known, and later than what an earlier life may have stored.
    this.#lastSeq = Math.max(this.#lastSeq + 1, this.#clock.now() * 1000);
    this.#reserved.add(this.#lastSeq);
    return this.#lastSeq;
  }

  release(seq: number): void {
    this.#reserved.delete(seq);
  }

  /**
   * Takes an item in; it is stored at once.
   *
   * @param seq its place in line, from `reserve`
   * @throws HermesError `outbox_full` if it would exceed the limits, `bad_argument` for an id in use
   */
  add(id: string, content: OutboxContent, seq = this.reserve()): OutboxEntry {
    this.release(seq);
    if (this.#entries.has(id)) {
      throw new HermesError("bad_argument", "An item with this id is in the outbox already.");
    }
    let bytes = sizeOf(content);
    for (const entry of this.#entries.values()) bytes += sizeOf(entry.record.content);
    if (this.#entries.size >= this.#limit.items || bytes > this.#limit.bytes) {
      throw new HermesError(
        "outbox_full",
        `The outbox holds ${this.#entries.size} items that the agent has not taken yet. ` +
          "Wait for the connection, or discard some of them.",
      );
    }
    const record: OutboxRecord = { id, seq, createdAt: this.#clock.now(), content };
    const entry = newEntry(record, this.#put(record));
    this.#entries.set(id, entry);
    this.#listener.changed(describe(entry));
    return entry;
  }

  get(id: string): OutboxEntry | undefined {
    return this.#entries.get(id);
  }

  items(): OutgoingItem[] {
    return this.#ordered().map(describe);
  }

  /** The item to be sent next, if one is due. */
  next(now: number): OutboxEntry | undefined {
    const limit = Math.min(...this.#reserved);
    return this.#ordered().find(
      (entry) =>
        entry.state === "queued" &&
        entry.notBefore <= now &&
        (entry.earlier || entry.record.seq < limit),
    );
  }

  /** When the next postponed item becomes due, in epoch milliseconds. */
  nextDue(): number | undefined {
    const times = [...this.#entries.values()]
      .filter((entry) => entry.state === "queued")
      .map((entry) => entry.notBefore);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Written and not confirmed. */
  unconfirmed(): OutboxEntry[] {
    return this.#ordered().filter((entry) => entry.state === "sent" || entry.state === "sending");
  }

  /** The connection is gone: whatever is not confirmed goes out again under its id, files from part 0. */
  requeue(): void {
    for (const entry of this.unconfirmed()) this.mark(entry, "queued");
  }

  mark(entry: OutboxEntry, state: "queued" | "sending" | "sent"): void {
    if (entry.state === state || this.#entries.get(entry.record.id) !== entry) return;
    entry.state = state;
    this.#listener.changed(describe(entry));
  }

  accept(entry: OutboxEntry): void {
    this.#take(entry, "accepted");
    entry.settle.accept();
  }

  /** Refused: kept, and stored as failed, until the app decides. */
  fail(entry: OutboxEntry, failure: { readonly code: string; readonly message: string }): void {
    entry.state = "failed";
    entry.record = { ...entry.record, failure };
    void this.#put(entry.record);
    this.#listener.changed(describe(entry));
    entry.settle.reject(new HermesError(failure.code, failure.message));
  }

  /** Puts a failed item back in line, under its id. Returns a handle with promises of its own. */
  retry(id: string): Outgoing | undefined {
    const entry = this.#entries.get(id);
    if (entry?.state !== "failed") return undefined;
    const { failure: _gone, ...record } = entry.record;
    const fresh = newEntry(record, this.#put(record), entry.earlier);
    this.#entries.set(id, fresh);
    this.#listener.changed(describe(fresh));
    return fresh.outgoing;
  }

  discard(entry: OutboxEntry, error: HermesError): void {
    this.#take(entry, "discarded");
    entry.settle.reject(error);
  }

  /** The client stopped: whoever waits is told, the items stay. */
  stopped(error: HermesError): void {
    for (const [id, entry] of this.#entries) {
      if (entry.state === "failed") continue;
      entry.settle.reject(error);
      const again = newEntry(entry.record, Promise.resolve(), entry.earlier);
      again.failures = entry.failures;
      this.#entries.set(id, again);
    }
  }

  #take(entry: OutboxEntry, state: "accepted" | "discarded"): void {
    const { id } = entry.record;
    if (this.#entries.get(id) !== entry) return;
    entry.state = state;
    this.#entries.delete(id);
    this.#gone?.add(id);
    // After the write that may still be under way, or it would come back from the dead.
    void entry.outgoing.stored
      .catch(() => undefined)
      .then(() => this.#storage.remove(id))
      .catch((error: unknown) => {
        this.#warn("An item that is done could not be removed from the storage.", error);
      });
    this.#listener.changed(describe(entry));
  }

  async #put(record: OutboxRecord): Promise<void> {
    try {
      await this.#storage.put(record);
    } catch (error) {
      this.#warn(
        "An item could not be stored; it is sent, but would not survive a killed app.",
        error,
      );
      throw new HermesError("storage_failed", "The item could not be stored.", { cause: error });
    }
  }

  #ordered(): OutboxEntry[] {
    return [...this.#entries.values()].sort(
      (one, other) =>
        Number(other.earlier) - Number(one.earlier) || one.record.seq - other.record.seq,
    );
  }

  #warn(message: string, error: unknown): void {
    this.#listener.warning({ code: "storage_failed", message, error });
  }
}

function newEntry(record: OutboxRecord, stored: Promise<void>, earlier = false): OutboxEntry {
  let accept!: () => void;
  let reject!: (error: HermesError) => void;
  const accepted = new Promise<void>((resolve, refuse) => {
    accept = resolve;
    reject = refuse;
  });
  // An app that watches the `outbox` event instead of the promises has nothing to catch.
  accepted.catch(() => undefined);
  stored.catch(() => undefined);
  return {
    record,
    state: record.failure === undefined ? "queued" : "failed",
    earlier,
    failures: 0,
    notBefore: 0,
    outgoing: { id: record.id, stored, accepted },
    settle: { accept, reject },
  };
}

function sizeOf(content: OutboxContent): number {
  return content.kind === "text" ? content.text.length : content.bytes.length;
}

export function describe(entry: OutboxEntry): OutgoingItem {
  const { id, createdAt, content, failure } = entry.record;
  const shared = {
    id,
    createdAt,
    kind: content.kind,
    state: entry.state,
    ...(entry.state === "failed" && failure !== undefined ? { failure } : {}),
  };
  switch (content.kind) {
    case "text":
      return { ...shared, text: content.text, size: 0 };
    case "voice":
      return {
        ...shared,
        text: content.transcript ?? "",
        mime: `audio/${content.format}`,
        size: content.bytes.length,
      };
    case "file":
      return {
        ...shared,
        text: content.caption ?? "",
        mediaKind: content.mediaKind,
        mime: content.mime,
        ...(content.filename === undefined ? {} : { filename: content.filename }),
        size: content.bytes.length,
      };
  }
}
