/** Where the outbox survives a killed app. One small interface, three implementations. */
import { base64ToBytes, bytesToBase64 } from "./base64.ts";
import { HermesError } from "./errors.ts";
import type { MediaInKind, VoiceFormat } from "./protocol.ts";

/** One thing to be sent, as it is stored. Everything needed to send it again is in here. */
export interface OutboxRecord {
  readonly id: string;
  /** Order of sending. */
  readonly seq: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  readonly content: OutboxContent;
  /** Set once the door refused it; kept until the app retries or discards it. */
  readonly failure?: { readonly code: string; readonly message: string };
}

export type OutboxContent =
  | { readonly kind: "text"; readonly text: string }
  | {
      readonly kind: "voice";
      readonly format: VoiceFormat;
      readonly transcript?: string;
      readonly bytes: Uint8Array<ArrayBuffer>;
    }
  | {
      readonly kind: "file";
      readonly mediaKind: MediaInKind;
      readonly mime: string;
      readonly filename?: string;
      readonly caption?: string;
      readonly bytes: Uint8Array<ArrayBuffer>;
    };

/**
 * What the client needs from a storage. Use one storage (or one prefix) per agent and device:
 * whatever it holds is sent to the agent the client is connected to.
 */
export interface OutboxStorage {
  /** Everything stored, in any order. Called once, before the first connection. */
  load(): Promise<readonly OutboxRecord[]>;
  /** Store or replace the record with this id. */
  put(record: OutboxRecord): Promise<void>;
  remove(id: string): Promise<void>;
}

/** Holds everything in memory: nothing survives the process. */
export function memoryStorage(): OutboxStorage {
  const records = new Map<string, OutboxRecord>();
  return {
    load: () => Promise.resolve([...records.values()]),
    put: (record) => {
      records.set(record.id, record);
      return Promise.resolve();
    },
    remove: (id) => {
      records.delete(id);
      return Promise.resolve();
    },
  };
}

/** `localStorage`, React Native's `AsyncStorage` and the like. */
export interface KeyValueStore {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, value: string): void | Promise<void>;
  removeItem(key: string): void | Promise<void>;
}

/**
 * Stores the outbox in a key-value store of strings, one key per item and one for the list of ids.
 * Bytes are kept as base64, so `localStorage` (about 5 MB in all) suits texts and small files;
 * for files in a browser take `indexedDbStorage`.
 */
export function keyValueStorage(store: KeyValueStore, prefix: string): OutboxStorage {
  const listKey = `${prefix}:outbox`;
  const keyOf = (id: string): string => `${prefix}:outbox:${id}`;
  let ids: string[] | undefined;
  let queue: Promise<unknown> = Promise.resolve();

  // One change at a time: two overlapping writes of the list would lose one of them.
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const result = queue.then(work, work);
    queue = result.catch(() => undefined);
    return result;
  };
  const readIds = async (): Promise<string[]> => {
    if (ids === undefined) {
      const parsed: unknown = JSON.parse((await store.getItem(listKey)) ?? "[]");
      ids = Array.isArray(parsed) ? parsed.filter((id) => typeof id === "string") : [];
    }
    return ids;
  };

  return {
    load: () =>
      inTurn(async () => {
        const records: OutboxRecord[] = [];
        for (const id of await readIds()) {
          const text = await store.getItem(keyOf(id));
          const record = text === null ? undefined : recordFromJson(text);
          if (record !== undefined) records.push(record);
        }
        return records;
      }),
    put: (record) =>
      inTurn(async () => {
        const known = await readIds();
        // The item first: a list that names a missing item is harmless, an unlisted item is lost.
        await store.setItem(keyOf(record.id), recordToJson(record));
        if (!known.includes(record.id)) {
          const next = [...known, record.id];
          await store.setItem(listKey, JSON.stringify(next));
          ids = next;
        }
      }),
    remove: (id) =>
      inTurn(async () => {
        const next = (await readIds()).filter((known) => known !== id);
        await store.setItem(listKey, JSON.stringify(next));
        ids = next;
        await store.removeItem(keyOf(id));
      }),
  };
}

/** Stores the outbox in IndexedDB, bytes as they are. For browsers. */
export function indexedDbStorage(name: string, factory?: IDBFactory): OutboxStorage {
  const table = "outbox";
  let opened: Promise<IDBDatabase> | undefined;

  const open = (): Promise<IDBDatabase> => {
    opened ??= new Promise<IDBDatabase>((resolve, reject) => {
      const source = factory ?? globalThis.indexedDB;
      if (source === undefined) {
        reject(new HermesError("storage_failed", "IndexedDB is not available here."));
        return;
      }
      const request = source.open(name, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(table, { keyPath: "id" });
      };
      request.onsuccess = () => {
        const database = request.result;
        // Let another tab upgrade or delete the database instead of blocking it for ever.
        database.onversionchange = () => {
          database.close();
          opened = undefined;
        };
        resolve(database);
      };
      request.onerror = () => {
        reject(storageError(request.error));
      };
    }).catch((error: unknown) => {
      opened = undefined;
      throw error;
    });
    return opened;
  };

  const run = async <T>(
    mode: IDBTransactionMode,
    work: (store: IDBObjectStore) => IDBRequest<T>,
  ): Promise<T> => {
    const database = await open();
    return new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(table, mode);
      const request = work(transaction.objectStore(table));
      // Only a completed transaction is on the disk; the request alone is not.
      transaction.oncomplete = () => {
        resolve(request.result);
      };
      transaction.onabort = transaction.onerror = () => {
        reject(storageError(transaction.error));
      };
    });
  };

  return {
    load: async () => {
      const found: unknown[] = await run(
        "readonly",
        (store) => store.getAll() as IDBRequest<unknown[]>,
      );
      return found.filter(isOutboxRecord);
    },
    put: async (record) => {
      await run("readwrite", (store) => store.put(record));
    },
    remove: async (id) => {
      await run("readwrite", (store) => store.delete(id));
    },
  };
}

function storageError(cause: unknown): HermesError {
  return new HermesError("storage_failed", "The browser's storage refused the outbox.", { cause });
}

function recordToJson(record: OutboxRecord): string {
  const { content } = record;
  return JSON.stringify(
    content.kind === "text"
      ? record
      : { ...record, content: { ...content, bytes: bytesToBase64(content.bytes) } },
  );
}

/** Undefined for what is no record (written by another version, or damaged): better skipped than stuck. */
function recordFromJson(text: string): OutboxRecord | undefined {
  try {
    const value = JSON.parse(text) as { content?: { bytes?: unknown } };
    const bytes = value.content?.bytes;
    if (value.content !== undefined && typeof bytes === "string") {
      value.content.bytes = base64ToBytes(bytes);
    }
    return isOutboxRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isOutboxRecord(value: unknown): value is OutboxRecord {
  if (typeof value !== "object" || value === null) return false;
  const record = value as Partial<Record<keyof OutboxRecord, unknown>>;
  if (typeof record.id !== "string" || record.id === "") return false;
  if (typeof record.seq !== "number" || typeof record.createdAt !== "number") return false;
  const content = record.content as Record<string, unknown> | null | undefined;
  if (typeof content !== "object" || content === null) return false;
  const bytes = content["bytes"] instanceof Uint8Array;
  switch (content["kind"]) {
    case "text":
      return typeof content["text"] === "string";
    case "voice":
      return bytes && (content["format"] === "wav" || content["format"] === "ogg");
    case "file":
      return (
        bytes && typeof content["mediaKind"] === "string" && typeof content["mime"] === "string"
      );
    default:
      return false;
  }
}
