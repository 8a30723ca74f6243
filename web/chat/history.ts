/** The conversation on the disk: one IndexedDB per agent. */
import { deleteDB, openDB, type DBSchema, type IDBPDatabase } from "idb";
import type { Entry } from "./entries.ts";

interface Schema extends DBSchema {
  entries: { key: string; value: Entry; indexes: { order: number } };
}

/** The newest entries are kept; what is older leaves the disk. */
const KEPT_ENTRIES = 2_000;
/** A storage that does not answer for this long is as good as none. Milliseconds. */
const PATIENCE = 10_000;

export class History {
  readonly #name: string;
  readonly #failed: (error: unknown) => void;
  #database: Promise<IDBPDatabase<Schema>> | undefined;

  /** @param failed told each time the browser's storage refuses */
  constructor(agentId: string, failed: (error: unknown) => void) {
    this.#name = `hermes-chat:${agentId}`;
    this.#failed = failed;
  }

  /** Everything kept, oldest first; empty if there is no storage, or none that answers. */
  async load(patience = PATIENCE): Promise<Entry[]> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      const late = new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => {
          reject(new Error("The browser's storage does not answer."));
        }, patience);
      });
      return await Promise.race([this.#load(), late]);
    } catch (error) {
      this.#failed(error);
      return [];
    } finally {
      clearTimeout(timer);
    }
  }

  async #load(): Promise<Entry[]> {
    const database = await this.#open();
    const count = await database.count("entries");
    if (count > KEPT_ENTRIES) await this.#forget(database, count - KEPT_ENTRIES);
    return database.getAllFromIndex("entries", "order");
  }

  async save(entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return;
    try {
      const transaction = (await this.#open()).transaction("entries", "readwrite");
      await Promise.all([
        ...entries.map((entry) => transaction.store.put(entry)),
        transaction.done,
      ]);
    } catch (error) {
      this.#failed(error);
    }
  }

  async remove(key: string): Promise<void> {
    try {
      await (await this.#open()).delete("entries", key);
    } catch (error) {
      this.#failed(error);
    }
  }

  async clear(): Promise<void> {
    try {
      await (await this.#open()).clear("entries");
    } catch (error) {
      this.#failed(error);
    }
  }

  close(): void {
    void this.#database?.then((database) => {
      database.close();
    });
    this.#database = undefined;
  }

  #open(): Promise<IDBPDatabase<Schema>> {
    this.#database ??= openDB<Schema>(this.#name, 1, {
      upgrade(database) {
        database.createObjectStore("entries", { keyPath: "key" }).createIndex("order", "order");
      },
      blocking: () => {
        // Another window wants to delete it: let it.
        this.close();
      },
    }).catch((error: unknown) => {
      this.#database = undefined;
      throw error;
    });
    return this.#database;
  }

  async #forget(database: IDBPDatabase<Schema>, count: number): Promise<void> {
    const transaction = database.transaction("entries", "readwrite");
    let cursor = await transaction.store.index("order").openCursor();
    for (let left = count; left > 0 && cursor !== null; left -= 1) {
      await cursor.delete();
      cursor = await cursor.continue();
    }
    await transaction.done;
  }
}

export function outboxName(agentId: string): string {
  return `hermes-outbox:${agentId}`;
}

/** Deletes what the browser holds of an agent. */
export async function forgetAgent(agentId: string): Promise<void> {
  await Promise.allSettled([deleteDB(`hermes-chat:${agentId}`), deleteDB(outboxName(agentId))]);
}
