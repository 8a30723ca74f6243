import { IDBFactory } from "fake-indexeddb";
import { expect, test } from "vitest";
import {
  indexedDbStorage,
  keyValueStorage,
  memoryStorage,
  type OutboxRecord,
} from "../src/storage.ts";
import { makeBench } from "./support/fake-door.ts";

const TEXT: OutboxRecord = {
  id: "t",
  seq: 1,
  createdAt: 5,
  content: { kind: "text", text: "Привет 😀" },
};
const FILE: OutboxRecord = {
  id: "f",
  seq: 2,
  createdAt: 6,
  content: {
    kind: "file",
    mediaKind: "image",
    mime: "image/png",
    filename: "a.png",
    caption: "c",
    bytes: Uint8Array.from([0, 255, 7]),
  },
  failure: { code: "too_big", message: "x" },
};
const VOICE: OutboxRecord = {
  id: "v",
  seq: 3,
  createdAt: 7,
  content: { kind: "voice", format: "wav", transcript: "t", bytes: new Uint8Array(100_000) },
};

const map = new Map<string, string>();
const store = {
  getItem: (key: string) => map.get(key) ?? null,
  setItem: (key: string, value: string) => {
    map.set(key, value);
  },
  removeItem: (key: string) => {
    map.delete(key);
  },
};
const factory = new IDBFactory();

test.each([
  ["memory", () => memoryStorage(), false],
  ["key-value", () => keyValueStorage(store, "x"), true],
  ["IndexedDB", () => indexedDbStorage("x", factory), true],
])("%s: what is put comes back, replaced and removed by its id.", async (_name, make, survives) => {
  const storage = make();
  expect(await storage.load()).toEqual([]);
  for (const record of [TEXT, FILE, VOICE]) await storage.put(record);
  await storage.put({ ...TEXT, seq: 9 });
  await storage.remove("v");
  await storage.remove("nobody");
  const inOrder = async (from: typeof storage) =>
    [...(await from.load())].sort((a, b) => a.seq - b.seq);

  expect(await inOrder(storage)).toEqual([FILE, { ...TEXT, seq: 9 }]);
  if (survives) expect(await inOrder(make())).toEqual([FILE, { ...TEXT, seq: 9 }]);
});

test("IndexedDB that is missing is a warning and no end.", async () => {
  const bench = makeBench({ storage: indexedDbStorage("x") });
  await bench.ready();
  await expect(bench.client.sendText("x").stored).rejects.toMatchObject({ code: "storage_failed" });

  expect(bench.door.last.sent("text")).toHaveLength(1);
});

test("Foreign entries in IndexedDB are skipped.", async () => {
  const own = new IDBFactory();
  await indexedDbStorage("x", own).put(TEXT);
  await indexedDbStorage("x", own).put({ id: "odd" } as OutboxRecord);

  expect(await indexedDbStorage("x", own).load()).toEqual([TEXT]);
});
